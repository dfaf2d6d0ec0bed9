package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Info is one session in a listing.
type Info struct {
	SessionID             string   `json:"sessionId"`
	Cwd                   string   `json:"cwd"`
	AdditionalDirectories []string `json:"additionalDirectories,omitempty"`
	Title                 string   `json:"title,omitempty"`
	CreatedAt             int64    `json:"createdAt"` // epoch milliseconds
	UpdatedAt             int64    `json:"updatedAt"` // of its newest entry
	Entries               int      `json:"entries"`
	LastUserMessage       string   `json:"lastUserMessage,omitempty"`
	ParentSessionID       string   `json:"parentSessionId,omitempty"`
	Agent                 string   `json:"agent,omitempty"`
	Problem               string   `json:"problem,omitempty"` // damaged, newer or ""
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
		CreatedAt: st.head.CreatedAt, UpdatedAt: st.head.CreatedAt, Entries: len(st.order),
		LastUserMessage: st.lastMsg, ParentSessionID: st.head.ParentSessionID, Agent: st.head.Agent,
	}
	if n := len(st.order); n > 0 {
		i.UpdatedAt = max(i.UpdatedAt, st.order[n-1].createdAt)
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
	all, err := r.infos(ctx, p.Cwd)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(all, newestFirst)
	infos = []Info{}
	for _, i := range all {
		if p.Cwd != "" && !checkpoints.SameDir(i.Cwd, p.Cwd) || p.Cursor != "" && newestFirst(i, after) <= 0 {
			continue
		}
		if len(infos) == p.Limit {
			last := infos[p.Limit-1]
			return infos, strconv.FormatInt(last.UpdatedAt, 10) + "_" + last.SessionID, nil
		}
		infos = append(infos, i)
	}
	return infos, "", nil
}

func newestFirst(a, b Info) int {
	if c := cmp.Compare(b.UpdatedAt, a.UpdatedAt); c != 0 {
		return c
	}
	return cmp.Compare(b.SessionID, a.SessionID)
}

func parseCursor(cursor string) (Info, error) {
	if cursor == "" {
		return Info{}, nil
	}
	at, id, ok := strings.Cut(cursor, "_")
	n, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil {
		return Info{}, refuse(BadParams, "cursor %q is none that session/list gave", cursor)
	}
	return Info{UpdatedAt: n, SessionID: id}, nil
}

// infos are the sessions of a cwd ("": all): those open here from memory, the
// others from their summaries.
func (r *Registry) infos(ctx context.Context, cwd string) ([]Info, error) {
	open := map[string]*Session{}
	r.mu.Lock()
	for id, s := range r.open {
		open[id] = s
	}
	r.mu.Unlock()
	var all []Info
	for _, s := range open {
		s.mu.RLock()
		all = append(all, s.state.info())
		s.mu.RUnlock()
	}
	root, _, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	places, err := logPlaces(root)
	if err != nil {
		return nil, storageError("the sessions cannot be listed", err)
	}
	byDir := map[string][]place{}
	for _, p := range places {
		if open[p.id()] == nil && (cwd == "" || path.Base(p.dir) == checkpoints.WorkspaceKey(cwd)) {
			byDir[p.dir] = append(byDir[p.dir], p)
		}
	}
	for dir, places := range byDir {
		some, err := r.summaries.of(ctx, root, dir, places)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// summaries caches what a listing shows of logs, bound to their size and
// mtime: in memory, and beside the logs in one file a directory, whose lines
// are checked like a log's. A line that is missing, damaged or of another log
// is only made again.
type summaries struct {
	mu   sync.Mutex
	dirs map[string]map[string]summary // by directory, then by log name
}

type summary struct {
	Type  string `json:"type"` // summary
	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // ns
	Info  Info   `json:"info"`
}

const summariesName = "summaries"

// of returns the infos of logs in dir, reading those whose summary is stale.
func (c *summaries) of(ctx context.Context, root disk.Root, dir string, places []place) ([]Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs == nil {
		c.dirs = map[string]map[string]summary{}
	}
	known := c.dirs[dir]
	if known == nil {
		known = readSummaries(root, dir)
		c.dirs[dir] = known
	}
	fresh := make([]*summary, len(places))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range places {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			st, err := root.Lstat(p.log())
			if err != nil {
				return nil // deleted meanwhile
			}
			was, ok := known[p.name]
			if ok && was.Size == st.Size() && was.Mtime == st.ModTime().UnixNano() {
				fresh[i] = &was
				return nil
			}
			fresh[i] = &summary{Type: "summary", Name: p.name, Size: st.Size(), Mtime: st.ModTime().UnixNano(), Info: readInfo(root, p)}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var infos []Info
	stale := false
	now := map[string]summary{}
	for _, s := range fresh {
		if s == nil {
			continue
		}
		was, ok := known[s.Name]
		stale = stale || !ok || was.Size != s.Size || was.Mtime != s.Mtime
		now[s.Name] = *s
		infos = append(infos, s.Info)
	}
	for name, s := range known {
		if _, ok := now[name]; !ok {
			now[name] = s // of a session that is open here now, or gone; bound to size and mtime either way
		}
	}
	c.dirs[dir] = now
	if stale {
		writeSummaries(root, dir, now)
	}
	return infos, nil
}

func readSummaries(root disk.Root, dir string) map[string]summary {
	known := map[string]summary{}
	b, err := disk.ReadFile(root, path.Join(dir, summariesName))
	if err != nil {
		return known
	}
	// What cannot be read is made again.
	journal.Scan(bytes.NewReader(b), maxLine, func(l journal.Line) error {
		var s summary
		if l.Err == nil && json.Unmarshal(l.Object, &s) == nil && s.Type == "summary" {
			known[s.Name] = s
		}
		return nil
	})
	return known
}

// writeSummaries keeps the cache. A failure costs only time at the next listing.
func writeSummaries(root disk.Root, dir string, known map[string]summary) {
	var b []byte
	for _, s := range known {
		o, err := encodeRecord(s)
		if err != nil {
			return
		}
		if b, err = journal.Encode(b, o); err != nil {
			return
		}
	}
	disk.Publish(root, path.Join(dir, summariesName), b, 0o600)
}

// readInfo reads a log for its info. Nothing is hidden: what cannot be read is
// listed with its problem.
func readInfo(root disk.Root, p place) Info {
	at, _, _ := strings.Cut(p.name, "_")
	created, _ := strconv.ParseInt(at, 10, 64)
	info := Info{SessionID: p.id(), CreatedAt: created, UpdatedAt: created, Problem: "damaged"}
	h, err := readHeader(root, p)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == NewerVersion {
		info.Problem = "newer"
	}
	if err != nil {
		return info
	}
	f, err := root.OpenFile(p.log(), os.O_RDONLY, 0)
	if err != nil {
		return info
	}
	defer f.Close()
	st := newState()
	st.head = *h
	if _, err := journal.Scan(f, maxLine, st.applyLine); err != nil {
		return info
	}
	return st.info()
}
