package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// A store of the original Oino has a directory for each session,
// checkpoints/<sessionId>, with blobs/<name> and index.json:
//
//	[{"entryId":…, "createdAt":ms, "files":[[path, {"kind":"absent"} | {"kind":"file","name":"0"}], …]}, …]
//
// It knows what files were before each checkpoint's turn, and neither what the
// turns left nor what was said. So an imported session has a user entry without
// text for each checkpoint, and after states that are unknown: a rewind brings
// files back and names them as unchecked. Modes are not known either; a file
// keeps the one that it has.

// maxIndex bounds an index.json, in bytes.
const maxIndex = 256 << 20

// ImportParams is what to import.
type ImportParams struct {
	Dir string // the old agent directory, absolute
	Cwd string // of the sessions; "": the deepest directory that is there and holds all paths of each
}

// Imported is what Import did.
type Imported struct {
	Sessions []ImportedSession
	Known    []string // old ids that were imported before
	Problems []string // what could not be imported, each a sentence
}

// ImportedSession is one session that was imported.
type ImportedSession struct {
	OldID, SessionID, Cwd string
	Checkpoints, Files    int
}

// oldCheckpoint is one of an index.json.
type oldCheckpoint struct {
	EntryID   string    `json:"entryId"`
	CreatedAt int64     `json:"createdAt"`
	Files     []oldFile `json:"files"`
}

// oldFile is what a path was.
type oldFile struct {
	Path string
	Kind string
	Name string
	Size *int64 // bytes, where it is said
}

func (f *oldFile) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a file of %d parts, want its path and what it was", len(pair))
	}
	var was struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		Size *int64 `json:"size"`
	}
	if err := errors.Join(json.Unmarshal(pair[0], &f.Path), json.Unmarshal(pair[1], &was)); err != nil {
		return err
	}
	f.Kind, f.Name, f.Size = was.Kind, was.Name, was.Size
	return nil
}

// Import makes a session of each one of an original Oino's store that was not
// imported yet. The store is only read.
func (r *Registry) Import(ctx context.Context, p ImportParams) (Imported, error) {
	var done Imported
	source, err := r.openRoot(p.Dir)
	if err != nil {
		return done, refuse(BadParams, "%s cannot be opened: %v", p.Dir, err)
	}
	defer source.Close()
	entries, err := disk.ReadDir(source, "checkpoints")
	if err != nil {
		return done, refuse(BadParams, "%s is not the agent directory of an original Oino: its checkpoints cannot be listed: %v", p.Dir, err)
	}
	root, store, err := r.agentDir(true)
	if err != nil {
		return done, storageError("the agent directory "+r.dir+" cannot be used", err)
	}
	if err := disk.MkdirAll(root, "sessions", 0o700); err != nil {
		return done, storageError("the sessions cannot be made", err)
	}
	lock, err := journal.TryLock(path.Join(root.Name(), "sessions/import"+lockSuffix))
	if err != nil {
		return done, storageError("another process may be importing", err)
	}
	defer lock.Unlock()
	known := map[string]bool{}
	if err := r.EachInfo(ctx, "", func(i Info) error {
		known[i.ImportedFrom] = true
		return nil
	}); err != nil {
		return done, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		if !e.IsDir() {
			continue
		}
		if known[e.Name()] {
			done.Known = append(done.Known, e.Name())
			continue
		}
		i := importing{reg: r, root: root, store: store, source: source, id: e.Name(), dir: path.Join("checkpoints", e.Name()), done: &done}
		if err := i.session(p.Cwd); err != nil {
			return done, err
		}
	}
	return done, nil
}

// importing is one session on its way.
type importing struct {
	reg    *Registry
	root   disk.Root // ours
	store  *blobs.Store
	source disk.Root // theirs
	id     string    // the old one
	dir    string    // of it in source
	done   *Imported
	ws     *checkpoints.Workspace
	files  int
}

// problem notes what of the session could not be imported.
func (i *importing) problem(format string, args ...any) {
	i.done.Problems = append(i.done.Problems, "session "+i.id+": "+fmt.Sprintf(format, args...))
}

// session imports the session. Only what is wrong with our own store is an
// error.
func (i *importing) session(cwd string) error {
	index, err := i.index()
	if err != nil {
		i.problem("its index.json cannot be read: %v", err)
		return nil
	}
	if cwd == "" {
		if cwd, i.ws, err = i.deepest(index); err != nil {
			i.problem("%v", err)
			return nil
		}
	} else if i.ws, err = i.reg.workspace(cwd, nil, i.store, false); err != nil {
		return err
	}
	defer i.ws.Close()
	release, err := i.store.Hold()
	if err != nil {
		return storageError("the blob store cannot be held", err)
	}
	defer release()
	h := &headerRecord{
		Type: "session", Version: formatVersion, ID: i.reg.newID(), Cwd: cwd, CreatedAt: i.reg.now().UnixMilli(), App: i.reg.app,
		Tracking: Files, ImportedFrom: i.id,
	}
	if len(index) > 0 {
		h.CreatedAt = index[0].CreatedAt
	}
	records, err := i.records(h, index)
	if err != nil {
		return err
	}
	if err := i.store.Sync(); err != nil {
		return storageError("contents could not be kept", err)
	}
	s := i.reg.session(h)
	if err := s.createLog(i.root, records...); err != nil {
		return storageError("the session could not be made", err)
	}
	points := len(s.state.turns)
	if err := errors.Join(s.log.Close(), s.lock.Unlock()); err != nil {
		return storageError("the session could not be made", err)
	}
	i.done.Sessions = append(i.done.Sessions, ImportedSession{OldID: i.id, SessionID: h.ID, Cwd: cwd, Checkpoints: points, Files: i.files})
	return nil
}

// index reads index.json.
func (i *importing) index() ([]oldCheckpoint, error) {
	f, err := i.open("index.json")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxIndex {
		return nil, fmt.Errorf("it has more than %d bytes", maxIndex)
	}
	var index []oldCheckpoint
	return index, json.Unmarshal(data, &index)
}

// open opens a regular file of the session in the old store. Nothing else is
// ever opened: a FIFO would keep us waiting.
func (i *importing) open(name string) (disk.File, error) {
	name = path.Join(i.dir, name)
	info, err := i.source.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return i.source.OpenFile(name, os.O_RDONLY|disk.NoFollow, 0)
}

// deepest opens the deepest directory that is there and holds every path of
// the index.
func (i *importing) deepest(index []oldCheckpoint) (string, *checkpoints.Workspace, error) {
	dir := ""
	for _, c := range index {
		for _, f := range c.Files {
			if !filepath.IsAbs(f.Path) {
				continue // reported with its checkpoint
			}
			if dir == "" {
				dir = filepath.Dir(filepath.Clean(f.Path))
			}
			for !isBelowAny(filepath.Clean(f.Path), map[string]bool{dir: true}) {
				dir = filepath.Dir(dir)
			}
		}
	}
	if dir == "" {
		return "", nil, errors.New("it names no path, so its directory is not known; give --cwd")
	}
	for {
		ws, err := i.reg.workspace(dir, nil, i.store, false)
		if err == nil {
			return dir, ws, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", nil, err
		}
		dir = above
	}
}

// records are the lines of the session's log. Contents are put, not synced.
func (i *importing) records(h *headerRecord, index []oldCheckpoint) ([]any, error) {
	records := []any{h}
	parent := ""
	n := 0
	given := map[string]bool{"": true, Start: true}
	var with []string // checkpoints with files
	for _, c := range index {
		if given[c.EntryID] {
			i.problem("a checkpoint with the entry id %q, which is missing, taken or reserved, is left out", c.EntryID)
			continue
		}
		given[c.EntryID] = true
		content, err := encodeJSON([]textBlock{{"text", ""}})
		if err != nil {
			return nil, err
		}
		records = append(records, &entryRecord{Type: "entry", ID: c.EntryID, ParentID: parent, Role: User, CreatedAt: c.CreatedAt, Content: content})
		parent = c.EntryID
		before := &beforeRecord{Type: "before", Turn: c.EntryID}
		seen := map[string]bool{}
		for _, f := range c.Files {
			iv, ok, err := i.interval(c.EntryID, f)
			if err != nil {
				return nil, err
			}
			if !ok || seen[iv.Path] {
				continue
			}
			seen[iv.Path] = true
			n++
			iv.N = n
			before.Intervals = append(before.Intervals, iv)
		}
		if len(before.Intervals) > 0 {
			records = append(records, before)
			with = append(with, c.EntryID)
		}
		records = append(records, &endRecord{Type: "end", Turn: c.EntryID, Why: "import"})
	}
	i.files = n
	if over := len(with) - i.reg.limits.MaxCheckpoints; over > 0 {
		records = append(records, &evictRecord{Type: "evict", Through: with[over-1]})
	}
	return records, nil
}

// failing keeps what reading failed with, to tell it from what keeping fails with.
type failing struct {
	io.ReadSeeker
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.ReadSeeker.Read(b)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// interval is what one path was; not ok where it cannot be ours. Only what is
// wrong with our own store is an error.
func (i *importing) interval(entry string, f oldFile) (iv intervalRecord, ok bool, err error) {
	names, err := i.ws.Resolve(f.Path)
	if err != nil {
		i.problem("checkpoint %s: %v", entry, err)
		return iv, false, nil
	}
	iv.Path = names[0]
	switch f.Kind {
	case "absent":
		iv.Before = checkpoints.State{Kind: checkpoints.Absent}
		return iv, true, nil
	case "file":
	default:
		i.problem("checkpoint %s: %s was of kind %q, which is not known; it cannot come back", entry, f.Path, f.Kind)
		iv.Before, iv.Error = checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.NotRegular}, "of a kind that is not known: "+f.Kind
		return iv, true, nil
	}
	lost := func(err error) (intervalRecord, bool, error) {
		i.problem("checkpoint %s: the content of %s is lost: %v", entry, f.Path, err)
		iv.Before, iv.Error = checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.Unreadable}, "its content was lost before the import: "+err.Error()
		return iv, true, nil
	}
	if f.Name == "" || f.Name != path.Base(path.Clean("/"+f.Name)) || strings.ContainsAny(f.Name, `/\`) {
		return lost(fmt.Errorf("%q names no blob", f.Name))
	}
	blob, err := i.open(path.Join("blobs", f.Name))
	if err != nil {
		return lost(err)
	}
	defer blob.Close()
	info, err := blob.Stat()
	if err == nil && f.Size != nil && *f.Size != info.Size() {
		err = fmt.Errorf("blob %s has %d bytes where it should have %d", f.Name, info.Size(), *f.Size)
	}
	if err != nil {
		return lost(err)
	}
	theirs := &failing{ReadSeeker: blob}
	digest, size, err := i.store.PutFrom(theirs)
	if theirs.err != nil {
		return lost(theirs.err)
	}
	if err != nil {
		return iv, false, storageError("the content of "+f.Path+" could not be kept", err)
	}
	iv.Before = checkpoints.State{Kind: checkpoints.File, Mode: 0o644, Size: size, Digest: digest}
	if now := i.ws.Look(iv.Path).State; now.Kind == checkpoints.File {
		iv.Before.Mode = now.Mode
	}
	return iv, true, nil
}
