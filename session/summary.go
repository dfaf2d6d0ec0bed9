package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Info is one session in a listing.
type Info struct {
	SessionID             string   `json:"sessionId"`
	Cwd                   string   `json:"cwd"`
	AdditionalDirectories []string `json:"additionalDirectories,omitempty"`
	Title                 string   `json:"title,omitempty"`
	CreatedAt             int64    `json:"createdAt"` // epoch milliseconds
	UpdatedAt             int64    `json:"updatedAt"` // of its newest entry, change or rewind
	Entries               int      `json:"entries"`   // of the active branch, as are the two messages
	Checkpoints           int      `json:"checkpoints,omitempty"`
	Size                  int64    `json:"size,omitempty"` // bytes of its log as it lies on disk
	FirstUserMessage      string   `json:"firstUserMessage,omitempty"`
	LastUserMessage       string   `json:"lastUserMessage,omitempty"`
	ParentSessionID       string   `json:"parentSessionId,omitempty"`
	Agent                 string   `json:"agent,omitempty"`
	AgentSessionIDs       []string `json:"agentSessionIds,omitempty"` // by which clients of the agent know it
	// AgentRenamed are ids that the agent has for it and clients do not know: to
	// those that they know, or of those that it had, to "".
	AgentRenamed map[string]string `json:"agentRenamed,omitempty"`
	ImportedFrom string            `json:"importedFrom,omitempty"` // its id in the store it was imported from
	Problem      string            `json:"problem,omitempty"`      // damaged, newer or ""
}

// ListParams selects sessions.
type ListParams struct {
	Cwd    string // "" for all
	Cursor string
	Limit  int // 0: 100
}

// pageSize is how many sessions a page holds unless the caller says.
const pageSize = 100

// info is what a listing shows of a session.
func (st *state) info() Info {
	i := Info{
		SessionID: st.head.ID, Cwd: st.head.Cwd, AdditionalDirectories: st.dirs, Title: st.shownTitle(),
		CreatedAt: st.head.CreatedAt, UpdatedAt: max(st.head.CreatedAt, st.active),
		ParentSessionID: st.head.ParentSessionID, Agent: st.head.Agent, ImportedFrom: st.head.ImportedFrom,
		AgentSessionIDs: st.agentIDs(), AgentRenamed: st.renamed(), Checkpoints: len(st.listed()),
	}
	if n := st.leaf; n != nil {
		i.Entries, i.FirstUserMessage, i.LastUserMessage = n.depth, n.firstMsg, n.lastMsg
	}
	if len(st.damage) > 0 {
		i.Problem = "damaged"
	}
	return i
}

// List returns a page of sessions, newest activity first.
func (r *Registry) List(ctx context.Context, p ListParams) (infos []Info, nextCursor string, err error) {
	after, err := parseCursor(p.Cursor)
	if err != nil {
		return nil, "", err
	}
	if p.Limit <= 0 {
		p.Limit = pageSize
	}
	all, err := r.summariesOf(ctx, p.Cwd)
	if err != nil {
		return nil, "", err
	}
	page := all
	if p.Cursor != "" {
		page = slices.DeleteFunc(slices.Clone(all), func(s summary) bool { return s.compare(after) <= 0 })
	}
	more := len(page) > p.Limit
	slices.SortFunc(page, summary.compare)
	infos = []Info{}
	for _, s := range page[:min(len(page), p.Limit)] {
		i, err := r.infoOf(s, all)
		if err != nil {
			return nil, "", err
		}
		infos = append(infos, i)
	}
	if more {
		last := infos[p.Limit-1]
		nextCursor = strconv.FormatInt(last.UpdatedAt, 10) + "_" + last.SessionID
	}
	return infos, nextCursor, nil
}

// EachInfo passes every session of cwd ("": all) to f, newest activity first,
// as List would.
func (r *Registry) EachInfo(ctx context.Context, cwd string, f func(Info) error) error {
	all, err := r.summariesOf(ctx, cwd)
	if err != nil {
		return err
	}
	slices.SortFunc(all, summary.compare)
	for _, s := range all {
		i, err := r.infoOf(s, all)
		if err != nil {
			return err
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

func parseCursor(cursor string) (summary, error) {
	if cursor == "" {
		return summary{}, nil
	}
	at, id, ok := strings.Cut(cursor, "_")
	n, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil {
		return summary{}, refuse(BadParams, "cursor %q is not one that session/list gave", cursor)
	}
	return summary{at: n, name: "_" + id}, nil
}

// summariesOf are the sessions of a cwd ("": all): those open here from
// memory, the others from their logs' summaries.
func (r *Registry) summariesOf(ctx context.Context, cwd string) ([]summary, error) {
	open := map[string]*Session{}
	r.mu.Lock()
	maps.Copy(open, r.open)
	r.mu.Unlock()
	root, _, err := r.agentDir(false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	var all []summary
	skip := map[string]bool{}
	for id, s := range open {
		skip[id] = !s.inMemory
		if cwd != "" && !checkpoints.SameDir(s.cwd, cwd) {
			continue
		}
		s.mu.RLock()
		info := s.state.info()
		s.mu.RUnlock()
		if root != nil && !s.inMemory {
			if st, _, err := s.place.stat(root); err == nil {
				info.Size = st.Size()
			}
		}
		b, err := encodeJSON(info)
		if err != nil {
			return nil, err
		}
		all = append(all, summary{dir: s.place.dir, name: "_" + id, at: info.UpdatedAt, info: b})
	}
	if root == nil {
		return all, nil
	}
	// Which directory a session works in is in the name of its log's.
	dirs := []string{path.Join("sessions", checkpoints.WorkspaceKey(cwd))}
	if cwd == "" {
		if dirs, err = workspaceDirs(root); err != nil {
			return nil, storageError("the sessions cannot be listed", err)
		}
	}
	for _, dir := range dirs {
		some, err := r.summaries.of(ctx, root, dir, skip)
		if err != nil && ctx.Err() == nil {
			err = storageError("the sessions cannot be listed", err)
		}
		if err != nil {
			return nil, err
		}
		for _, s := range some {
			if s.dir = dir; s.at != noInfo {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// noInfo is the activity of what is no session.
const noInfo = -1

// readInfo reads a log for its info. Nothing is hidden: what cannot be read is
// listed with its problem. With sure unset the log could not be read today, and
// perhaps can be tomorrow. What is no session has the activity noInfo.
func readInfo(root disk.Root, p place) (info Info, sure bool) {
	s, err := p.read(root, nil)
	if err == nil {
		return s.state.info(), true
	}
	if noSession(err) {
		return Info{SessionID: p.id(), UpdatedAt: noInfo}, true
	}
	at, _, _ := strings.Cut(p.name, "_")
	created, _ := strconv.ParseInt(at, 10, 64)
	info = Info{SessionID: p.id(), Cwd: readCwd(root, p), CreatedAt: created, UpdatedAt: created, Problem: "damaged"}
	e, ok := errors.AsType[*Error](err)
	if ok && e.Kind == NewerVersion {
		info.Problem = "newer"
	}
	return info, ok && e.Kind != StorageFailed
}

// readCwd is the working directory that a first line names which cannot be
// read otherwise, if the name of the directory that the log lies in bears it
// out; else "".
func readCwd(root disk.Root, p place) string {
	f, err := p.open(root)
	if err != nil {
		return ""
	}
	defer f.Close()
	head, _ := f.Peek(headSize)
	line, _, _ := bytes.Cut(head, []byte("\n"))
	var cwd string
	if named := cwdName.FindSubmatch(line); named == nil || json.Unmarshal(named[1], &cwd) != nil ||
		!filepath.IsAbs(cwd) || checkpoints.WorkspaceKey(cwd) != path.Base(p.dir) {
		return ""
	}
	return cwd
}

// cwdName is where a first line names the working directory.
var cwdName = regexp.MustCompile(`"cwd"\s*:\s*("(?:[^"\\]|\\.)*")`)

// infoOf is the info of s, which is one of all. Of a log that does not say any
// more where its session works, those beside it do; where none is, cwd is the
// directory that the log itself lies in: absolute, and where to look.
func (r *Registry) infoOf(s summary, all []summary) (Info, error) {
	i, err := s.decode()
	if err != nil || i.Cwd != "" {
		return i, err
	}
	for _, other := range all {
		if other.dir == s.dir && other.name != s.name {
			if o, err := other.decode(); err == nil && o.Cwd != "" {
				i.Cwd = o.Cwd
				return i, nil
			}
		}
	}
	dir, err := filepath.Abs(r.dir)
	i.Cwd = filepath.Join(dir, filepath.FromSlash(s.dir))
	return i, err
}
