package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// RecordRequest is one call of Record.
type RecordRequest struct {
	Paths   []string
	EntryID string // the turn; "": the open one
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

// Prompt appends a user entry with content (blocks), ends the turn before it
// and opens a new one.
func (s *Session) Prompt(ctx context.Context, content json.RawMessage) (Entry, error) {
	ids, err := s.Append(ctx, []NewEntry{{Role: User, Content: content}})
	if err != nil {
		return Entry{}, err
	}
	s.mu.RLock()
	n := s.state.nodes[ids[0]]
	s.mu.RUnlock()
	return Entry{ID: n.id, ParentID: n.parentID, Role: User, CreatedAt: n.createdAt, Content: content}, nil
}

// Append appends entries, all or none; one of role user opens a turn as
// Prompt does.
func (s *Session) Append(ctx context.Context, entries []NewEntry) (ids []string, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	records, err := s.entryRecords(entries)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return []string{}, nil
	}
	var all []any
	turn := "" // the one that will be open
	for _, r := range records {
		ids = append(ids, r.ID)
		if r.Role == User {
			turn = r.ID
		}
	}
	var seen *seenRecord
	if turn != "" {
		if all, seen, err = s.turnOver(ctx, turn); err != nil {
			return nil, err
		}
	}
	for _, r := range records {
		all = append(all, r)
	}
	if seen != nil {
		all = append(all, seen)
	}
	if err := s.commit(all...); err != nil {
		return nil, err
	}
	if turn != "" {
		s.letGo(ctx)
	}
	for _, r := range records {
		if r.Role == User {
			s.emit("checkpoint", map[string]any{"entryId": r.ID})
		}
	}
	return ids, nil
}

// entryRecords checks entries to append and makes their records, each below
// the one before.
func (s *Session) entryRecords(entries []NewEntry) ([]*entryRecord, error) {
	parent := ""
	if s.state.leaf != nil {
		parent = s.state.leaf.id
	}
	given := map[string]bool{}
	var records []*entryRecord
	for i, e := range entries {
		switch e.Role {
		case User, Assistant, Tool, Compaction, Custom:
		default:
			return nil, refuse(BadParams, "entries[%d] has role %q; the roles are user, assistant, tool, compaction and custom", i, e.Role)
		}
		switch {
		case e.ID == "":
			e.ID = s.reg.newID()
		case !validID(e.ID):
			return nil, refuse(BadParams, "entries[%d] has id %q; an id is 1 to 128 of A-Z a-z 0-9 . _ : -", i, e.ID)
		case e.ID == Start:
			return nil, refuse(BadParams, "entries[%d] has id %q, which names the state before the first turn", i, e.ID)
		}
		if s.state.nodes[e.ID] != nil || given[e.ID] {
			return nil, refuse(BadParams, "entries[%d] has id %q, which the session has already", i, e.ID)
		}
		given[e.ID] = true
		if e.Role == Compaction && len(e.Content) == 0 {
			e.Content, _ = encodeRecord(e.Summary)
		}
		content, err := asBlocks(e.Content)
		if err != nil {
			return nil, refuse(BadParams, "entries[%d]: %v", i, err)
		}
		if e.Display != nil {
			if e.Display, err = asBlocks(e.Display); err != nil {
				return nil, refuse(BadParams, "entries[%d]: displayContent: %v", i, err)
			}
		}
		if len(e.MessageID) > 128 {
			return nil, refuse(BadParams, "entries[%d] has a messageId of %d bytes; at most 128 are kept", i, len(e.MessageID))
		}
		if e.Role == Tool && e.ToolCallID == "" {
			return nil, refuse(BadParams, "entries[%d] of role tool has no toolCallId", i)
		}
		if e.Role == Compaction && e.KeepFrom != "" && s.state.nodes[e.KeepFrom] == nil && !given[e.KeepFrom] {
			return nil, refuse(EntryNotFound, "entries[%d] keeps from entry %q, which the session does not have", i, e.KeepFrom)
		}
		records = append(records, &entryRecord{
			Type: "entry", ID: e.ID, ParentID: parent, Role: e.Role, CreatedAt: s.now(),
			Content: content, Display: e.Display, ToolCallID: e.ToolCallID, Status: e.Status, Tool: e.Tool,
			Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
			MessageID: e.MessageID,
		})
		parent = e.ID
	}
	return records, nil
}

// validID reports whether a client may give an entry this id.
func validID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
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

// staging collects the intervals and after states of calls that are made
// durable together.
type staging struct {
	s      *Session
	turn   *turn
	staged map[string]*interval // the newest of each path that is staged, or a copy
	next   int
	before []intervalRecord
	after  []afterState

	captured map[string]checkpoints.Captured // in advance, of paths to be opened; see capture
}

func (s *Session) stage(t *turn) *staging {
	return &staging{s: s, turn: t, staged: map[string]*interval{}, next: s.state.nextInterval()}
}

// newest is the turn's newest interval of a path, with what is staged; nil
// where there is none.
func (g *staging) newest(path string) *interval {
	if iv := g.staged[path]; iv != nil {
		return iv
	}
	if iv := g.turn.newest[path]; iv != nil && !iv.out {
		return iv
	}
	return nil
}

// open captures path as the before of a new interval.
func (g *staging) open(path string) (checkpoints.Captured, error) {
	c, ok := g.captured[path]
	if !ok {
		var err error
		if c, err = g.s.captureBefore(g.turn, path); err != nil {
			return c, storageError("the contents of "+path+" could not be kept", err)
		}
	}
	delete(g.captured, path)
	g.before = append(g.before, intervalRecord{N: g.next, Path: path, Before: c.State, Parents: c.Parents, Error: c.Err})
	g.staged[path] = &interval{n: g.next, turn: g.turn, path: path, before: c.State, err: c.Err}
	g.s.opened[g.next] = g.s.reg.neighbours.now()
	g.next++
	return c, nil
}

// capture captures in advance, and several at a time, what is about to be
// opened. Where that fails each open captures its own, so that what fails
// fails alone.
func (g *staging) capture(names [][]string) {
	var paths []string
	seen := map[string]bool{}
	for _, name := range slices.Concat(names...) {
		if !seen[name] && g.newest(name) == nil {
			seen[name] = true
			paths = append(paths, name)
		}
	}
	g.captured = make(map[string]checkpoints.Captured, len(paths))
	paths = g.s.seenBefore(g.turn, paths, g.captured)
	all, err := g.s.ws.CaptureAll(paths)
	if err != nil {
		return
	}
	for i, path := range paths {
		g.captured[path] = all[i]
	}
}

// fix sets the after state of path's newest interval; nil makes it unknown.
// temp is of the write that brings the state about.
func (g *staging) fix(path string, state *checkpoints.State, temp string) {
	iv := *g.newest(path) // what is in the state changes when it is in the log
	g.after = append(g.after, afterState{N: iv.n, State: state, Written: state != nil, Temp: temp})
	iv.after, iv.written = checkpoints.State{}, state != nil
	if state != nil {
		iv.after = *state
	}
	g.staged[path] = &iv
}

// records are what is to be committed: nil if nothing was staged.
func (g *staging) records() []any {
	var all []any
	if len(g.before) > 0 {
		all = append(all, &beforeRecord{Type: "before", Turn: g.turn.entry.id, Intervals: g.before})
		if e := g.s.eviction(g.turn); e != nil {
			all = append(all, e)
		}
	}
	if len(g.after) > 0 {
		all = append(all, &afterRecord{Type: "after", Turn: g.turn.entry.id, Afters: g.after})
	}
	return all
}

// commit makes what was staged durable, contents first.
func (g *staging) commit() error {
	all := g.records()
	if len(all) == 0 {
		return nil
	}
	if err := g.s.syncBlobs(); err != nil {
		return err
	}
	return g.s.commit(all...)
}

// eviction is the record that keeps the number of checkpoints with files in
// bounds when turn t gets its first interval, or nil.
func (s *Session) eviction(t *turn) *evictRecord {
	if s.state.holds(t.entry) {
		return nil
	}
	var with []*node
	for _, n := range s.state.listed() {
		if n == t.entry || s.state.holds(n) {
			with = append(with, n)
		}
	}
	over := len(with) - s.reg.limits.MaxCheckpoints
	if over <= 0 || with[over-1] == t.entry {
		return nil
	}
	return &evictRecord{Type: "evict", Through: with[over-1].id}
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
	for i, req := range reqs {
		t, err := s.openTurn(req.EntryID)
		if err == nil {
			names[i], err = s.resolve(req.Paths)
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
	g.capture(names)
	for i := range reqs {
		if replies[i].Err != nil {
			continue
		}
		if replies[i], err = g.record(names[i]); err != nil {
			replies[i] = RecordReply{Err: err}
		}
	}
	if err := g.commit(); err != nil {
		return fail(err)
	}
	return replies
}

// resolve gives the names that paths have here, or why one of them has none.
func (s *Session) resolve(paths []string) ([]string, error) {
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		resolved, err := s.ws.Resolve(p)
		if err != nil {
			return nil, err
		}
		names = append(names, resolved...)
	}
	return names, nil
}

// record stages one request.
func (g *staging) record(names []string) (RecordReply, error) {
	r := RecordReply{EntryID: g.turn.entry.id, Recorded: []string{}, Known: []string{}}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if iv := g.newest(name); iv != nil {
			r.Known = append(r.Known, name)
			if iv.written {
				g.fix(name, nil, "")
			}
			continue
		}
		c, err := g.open(name)
		if err != nil {
			return r, err
		}
		if c.State.Kind == checkpoints.Uncovered {
			r.Uncovered = append(r.Uncovered, Uncovered{Path: name, Reason: c.State.Reason, Error: c.Err})
		} else {
			r.Recorded = append(r.Recorded, name)
		}
	}
	return r, nil
}

// Write captures path and writes content to it.
func (s *Session) Write(ctx context.Context, path string, content []byte) (WriteResult, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return WriteResult{}, err
	}
	defer end()
	return s.write(path, func(string) ([]byte, error) { return content, nil })
}

// write captures path and what it leads to, and writes what content makes of it.
func (s *Session) write(path string, content func(name string) ([]byte, error)) (WriteResult, error) {
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
	data, err := content(target)
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
	temp := s.ws.TempName()
	g.fix(target, &after, temp)
	if err := g.commit(); err != nil {
		return res, err
	}
	if err := s.claimed(func() ([]workspace.Claim, error) {
		_, err := s.ws.Write(target, data, temp)
		return []workspace.Claim{{Path: target, Before: now, After: after}}, err
	}); err != nil {
		// The log says what was to be there; say what is.
		g := s.stage(t)
		left := s.ws.Look(target).State
		g.fix(target, &left, "")
		if cerr := g.commit(); cerr != nil {
			return res, errors.Join(writeError(target, err), cerr)
		}
		return res, writeError(target, err)
	}
	return res, nil
}

func writeError(path string, err error) error {
	if _, ok := errors.AsType[*checkpoints.PathError](err); ok {
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
	records, err := s.ending(ctx, t, why, open)
	if err != nil {
		return err
	}
	if err := s.commit(records...); err != nil {
		return err
	}
	s.letGo(ctx)
	return nil
}

// ending are the records that end t with what is there now.
func (s *Session) ending(ctx context.Context, t *turn, why string, open bool) ([]any, error) {
	if s.tracker != nil {
		seen, err := s.look(ctx, false, true)
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
	for i, iv := range ivs {
		a, part := s.divide(iv, all[i].State)
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

// result is what the turn did, from its intervals in play.
func (t *turn) result() TurnResult {
	r := TurnResult{EntryID: t.entry.id, Changed: []PathChange{}}
	first := map[string]*interval{}
	for _, iv := range t.intervals {
		if !iv.out && first[iv.path] == nil {
			first[iv.path] = iv
		}
	}
	r.Uncovered = t.notSeen()
	for _, last := range t.openIntervals() {
		iv := first[last.path]
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
