package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// RecordRequest is one call of Record.
type RecordRequest struct {
	Paths   []string
	EntryID string // the turn; "": the open one
	// Since is from when on the paths may have been changed already, by whoever
	// names them only now: what was changed since is not taken for what was there
	// before. Zero: nobody has changed anything yet.
	Since time.Time
	// Changes: whoever names the paths changes them, whatever is answered. So one
	// outside of the roots is not refused, but said to be uncovered.
	Changes bool
}

// RecordReply answers one RecordRequest.
type RecordReply struct {
	EntryID   string
	Recorded  []string
	Known     []string
	Uncovered []Uncovered
	Err       error
}

// Uncovered is a path whose state could not be kept.
type Uncovered struct {
	Path   string             `json:"path"`
	Reason checkpoints.Reason `json:"reason"`
	Error  string             `json:"error,omitempty"`
}

// WriteResult is what Write did.
type WriteResult struct {
	EntryID   string
	Existed   bool
	Bytes     int64
	Uncovered []Uncovered
}

// Replacement is one edit of Edit.
type Replacement struct {
	OldText, NewText string
	All              bool
}

// EditResult is what Edit did.
type EditResult struct {
	EntryID      string
	Replacements int
}

// PathChange is what happened to a path.
type PathChange struct {
	Path   string             `json:"path"`
	Change checkpoints.Change `json:"change"`
}

// TurnResult is what a turn did.
type TurnResult struct {
	EntryID   string
	Changed   []PathChange
	Uncovered []Uncovered
}

// Blind says why the open turn of a tracked session is not covered as a whole;
// nil: it is.
func (s *Session) Blind() *Uncovered {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.state.open; t != nil && t.blind != nil {
		return &Uncovered{Path: t.blind.Root, Reason: t.blind.Blind, Error: t.blind.Error}
	}
	return nil
}

// openTurn is the turn that changes belong to; entryID, if given, must be its.
func (s *Session) openTurn(entryID string) (*turn, error) {
	t := s.state.open
	if entryID != "" && s.state.nodes[entryID] == nil {
		return nil, refuse(EntryNotFound, "session %s has no entry %q", s.id, entryID)
	}
	if t == nil {
		e := refuse(NoTurn, "session %s has no open turn; send a prompt (or append a user entry) first", s.id)
		if last := s.state.last; last != nil && last.why == "rewind" {
			e.Msg = fmt.Sprintf("a rewind ended the turn of session %s; send a prompt (or append a user entry) first", s.id)
			e.Data = map[string]any{"endedByRewind": true}
		}
		return nil, e
	}
	if entryID != "" && entryID != t.entry.id {
		return nil, refuse(NoTurn, "entry %q is not the open turn of session %s, which is %q", entryID, s.id, t.entry.id)
	}
	return t, nil
}

// Record captures paths before somebody else changes them. All requests are
// made durable with one sync of the contents and one of the log; a bad request
// fails alone.
func (s *Session) Record(ctx context.Context, reqs []RecordRequest) []RecordReply {
	replies := make([]RecordReply, len(reqs))
	fail := func(err error) []RecordReply {
		for i := range replies {
			if replies[i].Err == nil {
				replies[i] = RecordReply{Err: err}
			}
		}
		return replies
	}
	end, err := s.begin(ctx)
	if err != nil {
		return fail(err)
	}
	defer end()
	var g *staging
	names := make([][]string, len(reqs)) // what the paths of each are called here
	beyond := make([][]Uncovered, len(reqs))
	for i, req := range reqs {
		t, err := s.openTurn(req.EntryID)
		if err == nil {
			names[i], beyond[i], err = s.resolve(req)
		}
		if err != nil {
			replies[i].Err = err
		} else if g == nil {
			g = s.stage(t)
		}
	}
	if g == nil {
		return replies
	}
	s.remind(ctx, true)
	g.capture(names)
	for i := range reqs {
		if replies[i].Err != nil {
			continue
		}
		if replies[i], err = g.record(names[i], reqs[i].Since); err != nil {
			replies[i] = RecordReply{Err: err}
			continue
		}
		replies[i].Uncovered = append(replies[i].Uncovered, beyond[i]...)
		g.unseen = append(g.unseen, beyond[i]...)
	}
	if err := g.commit(); err != nil {
		return fail(err)
	}
	return replies
}

// resolve gives the names that the paths of a request have here, and those that
// are beyond the roots where that does not refuse it; or why one has no name.
func (s *Session) resolve(req RecordRequest) (names []string, beyond []Uncovered, err error) {
	for _, p := range req.Paths {
		resolved, err := s.ws.Resolve(p)
		if e, ok := errors.AsType[*checkpoints.PathError](err); ok && req.Changes && e.Kind == string(checkpoints.CodeOutsideRoots) {
			beyond = append(beyond, Uncovered{Path: p, Reason: checkpoints.Excluded, Error: "it " + e.Msg})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		names = append(names, resolved...)
	}
	return names, beyond, nil
}

// Write captures path and writes content to it.
func (s *Session) Write(ctx context.Context, path string, content []byte) (WriteResult, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return WriteResult{}, err
	}
	defer end()
	return s.write(path, func(string) ([]byte, *blobs.Digest, error) { return content, nil, nil })
}

// writeTries is how often a write begins anew because somebody else has changed
// the file between its capture and the moment it would be replaced.
const writeTries = 4

// write captures path and what it leads to, and writes what content makes of
// it. content says what it has read for that, if it has.
func (s *Session) write(path string, content func(name string) (data []byte, read *blobs.Digest, err error)) (res WriteResult, err error) {
	for range writeTries {
		if res, err = s.writeOnce(path, content); !errors.Is(err, checkpoints.ErrAppeared) {
			return res, err
		}
	}
	return res, &Error{Kind: Conflict, Msg: path + " is being changed by somebody else, and was not written; try again when that is over", Err: err}
}

func (s *Session) writeOnce(path string, content func(name string) ([]byte, *blobs.Digest, error)) (WriteResult, error) {
	t, err := s.openTurn("")
	if err != nil {
		return WriteResult{}, err
	}
	if strings.HasSuffix(path, "/") {
		return WriteResult{}, &checkpoints.PathError{Path: path, Kind: "bad_path", Msg: "the name of a file does not end in a slash"}
	}
	names, err := s.ws.Resolve(path)
	if err != nil {
		return WriteResult{}, err
	}
	target := names[0]
	data, read, err := content(target)
	if err != nil {
		return WriteResult{}, err
	}
	after, err := s.ws.StateOf(target, data)
	if err != nil {
		return WriteResult{}, err
	}
	res := WriteResult{EntryID: t.entry.id, Bytes: int64(len(data))}
	g := s.stage(t)
	for _, link := range names[1:] {
		if g.newest(link) == nil {
			if _, err := g.open(link); err != nil {
				return res, err
			}
		}
	}
	var now checkpoints.State
	if iv := g.newest(target); iv != nil {
		now = s.ws.Look(target).State
		if s.tracker == nil && breaks(iv.after, now) {
			// Somebody changed it since this turn last wrote it: a seam. (In a
			// tracked workspace the turn's end tells whose it is.)
			if _, err := g.open(target); err != nil {
				return res, err
			}
		}
	} else {
		c, err := g.open(target)
		if err != nil {
			return res, err
		}
		if now = c.State; s.tracker != nil { // that is what it was when the turn began
			now = s.ws.Look(target).State
		}
	}
	if read != nil && now.Digest != *read {
		return res, checkpoints.ErrAppeared
	}
	if iv := g.newest(target); iv.before.Kind == checkpoints.Uncovered {
		res.Uncovered = append(res.Uncovered, uncoveredOf(iv))
	}
	res.Existed = now.Kind != checkpoints.Absent
	// What the turn leaves is kept too: a merge needs it.
	if int64(len(data)) <= s.reg.limits.MaxSnapshotBytes {
		if _, err := s.blobs.Put(data); err != nil {
			return res, storageError("the new contents of "+target+" could not be kept", err)
		}
	}
	was := now
	if was.Kind == checkpoints.Uncovered && was.Digest == (blobs.Digest{}) {
		was = checkpoints.State{} // it could not be seen, and is what it is
	}
	temp := s.ws.TempName()
	g.fix(target, &after, temp)
	if err := g.commit(); err != nil {
		return res, err
	}
	if err := s.claimed(func() ([]workspace.Claim, error) {
		_, err := s.ws.Write(target, data, temp, was)
		return []workspace.Claim{{Path: target, Before: now, After: after}}, err
	}); err != nil {
		// The log says what was to be there; say what is.
		g := s.stage(t)
		left := now // what others make of it is a seam
		if !errors.Is(err, checkpoints.ErrAppeared) {
			left = s.ws.Look(target).State
		}
		g.fix(target, &left, "")
		if cerr := g.commit(); cerr != nil {
			return res, errors.Join(writeError(target, err), cerr)
		}
		return res, writeError(target, err)
	}
	return res, nil
}

func writeError(path string, err error) error {
	if _, ok := errors.AsType[*checkpoints.PathError](err); ok || errors.Is(err, checkpoints.ErrAppeared) {
		return err
	}
	return storageError(path+" could not be written", err)
}

// EndTurn fixes the after states of the open turn. Without one it gives the
// newest turn's result again; a session without a turn is NoTurn.
func (s *Session) EndTurn(ctx context.Context) (TurnResult, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return TurnResult{}, err
	}
	defer end()
	t := s.state.open
	if t == nil {
		if s.state.last == nil {
			_, err := s.openTurn("")
			return TurnResult{}, err
		}
		return s.state.last.result(), nil
	}
	if err := s.endTurn(ctx, t, "turn_end", false); err != nil {
		return TurnResult{}, err
	}
	return t.result(), nil
}

// endTurn fixes t's after states and ends it, or leaves it open over a close.
func (s *Session) endTurn(ctx context.Context, t *turn, why string, open bool) error {
	records, err := s.ending(ctx, t, why, true, open)
	if err != nil {
		return err
	}
	if why == "turn_end" {
		for _, r := range records {
			if e, ok := r.(*endRecord); ok {
				e.At = s.now()
			}
		}
	}
	if err := s.commit(records...); err != nil {
		return err
	}
	s.letGo(ctx)
	return nil
}

// ending are the records that end t with what is there now. Where it does not
// really end, which only a fork or a dry run wants to know, others are not told
// that it has.
func (s *Session) ending(ctx context.Context, t *turn, why string, really, open bool) ([]any, error) {
	if s.tracker != nil {
		seen, err := s.look(ctx, false, really)
		if err != nil {
			return nil, err
		}
		return s.seal(ctx, t, seen, why, open)
	}
	afters, rest, err := s.fixAfters(t, nil)
	if err != nil {
		return nil, err
	}
	return append(rest, &endRecord{Type: "end", Turn: t.entry.id, Why: why, Afters: afters, Open: open}), nil
}

// fixAfters looks at what the turn's paths are now, where that is not known,
// and keeps their contents, synced. Those in skip are passed over. rest holds
// the intervals that others' changes in between make necessary.
func (s *Session) fixAfters(t *turn, skip map[int]bool) (afters []afterState, rest []any, err error) {
	var ivs []*interval
	var paths []string
	for _, iv := range t.openIntervals() {
		if !iv.written && !skip[iv.n] {
			ivs, paths = append(ivs, iv), append(paths, iv.path)
		}
	}
	if len(ivs) == 0 {
		return nil, nil, nil
	}
	all, err := s.ws.CaptureAll(paths)
	if err != nil {
		return nil, nil, storageError("the contents of what the turn left could not be kept", err)
	}
	more := &beforeRecord{Type: "before", Turn: t.entry.id}
	heard := s.hear()
	for i, iv := range ivs {
		a, part := s.divide(iv, all[i].State, heard[iv.path])
		afters = append(afters, a)
		if part != nil {
			more.Intervals = append(more.Intervals, *part)
		}
	}
	if len(more.Intervals) > 0 {
		rest = []any{more}
		number(rest, s.state.nextInterval())
	}
	return afters, rest, s.syncBlobs()
}

// result is what the turn did, as it was when it ended: a rewind has made no
// other turn of it.
func (t *turn) result() TurnResult {
	r := TurnResult{EntryID: t.entry.id, Changed: []PathChange{}}
	first, newest := map[string]*interval{}, map[string]*interval{}
	for _, iv := range t.intervals {
		if iv.void || iv.out && !t.ended {
			continue
		}
		if first[iv.path] == nil {
			first[iv.path] = iv
		}
		newest[iv.path] = iv
	}
	r.Uncovered = t.notSeen()
	for _, iv := range t.inOrder(first) {
		last := newest[iv.path]
		if iv.along && last.along {
			continue
		}
		if iv.before.Kind == checkpoints.Uncovered {
			r.Uncovered = append(r.Uncovered, uncoveredOf(iv))
		}
		if c := checkpoints.ChangeOf(iv.before, last.after); c != "" && last.after.Kind != checkpoints.Unknown {
			r.Changed = append(r.Changed, PathChange{Path: iv.path, Change: c})
		}
	}
	r.Uncovered = distinct(r.Uncovered)
	return r
}
