package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// move is one rewind or redo under way: decide, prepare, write the intent, act,
// write what came of it. Nothing is changed before the intent is durable.
type move struct {
	session   *Session
	ctx       context.Context
	params    RewindParams
	touched   []*touch
	settled   []*touch // of a redo: paths whose intervals come back and whose files stay
	record    rewindRecord
	redo      *rewind // of a redo: what it undoes
	first     []any   // records that go before the intent
	wantsMove bool    // the conversation is to move, or a child to be published

	before []*node // the list of checkpoints before it
	moved  bool
	undid  bool // something was (or would be) written, or the conversation moved
	result RewindResult
}

// run carries the move out, or a dry run of it.
func (m *move) run() (RewindResult, error) {
	s := m.session
	m.before = s.state.listed()
	res := &m.result
	res.Restored, res.Deleted = []string{}, []string{}

	plan := m.plan()
	plan.AllOrNothing = m.params.Fail
	failed := plan.Failed
	var intent checkpoints.Intent
	if m.params.DryRun {
		good, unverified := s.ws.Verify(plan.Steps)
		intent.Steps, failed = good, append(failed, unverified...)
	} else {
		var unprepared []checkpoints.Failure
		var err error
		if intent, unprepared, err = s.ws.Prepare(m.ctx, plan); err != nil {
			if m.ctx.Err() != nil {
				return *res, m.ctx.Err()
			}
			return *res, storageError("the present could not be saved, so nothing was changed", err)
		}
		failed = append(failed, unprepared...)
	}
	failed = named(failed, m.touched)
	if m.params.Fail && len(failed) > 0 {
		return *res, failError(failed)
	}
	moves := m.wantsMove && !slices.ContainsFunc(failed, func(f checkpoints.Failure) bool { return f.Code.Real() })
	if m.params.DryRun {
		m.undid = len(intent.Steps) > 0 || moves
		m.fill(intent.Steps, failed)
		for _, t := range m.touched {
			if t.quiet {
				continue
			}
			if d := s.ws.Diff(t.Path, t.Target, t.Now.State, m.params.Context); d.Change != "" {
				res.Files = append(res.Files, d)
			}
		}
		return *res, nil
	}
	if err := m.ctx.Err(); err != nil {
		return *res, err
	}
	m.record.Intent, m.record.Failed = intent, failed
	m.takeOut(failed)
	m.noteMerged()
	if moves && m.params.Child != nil {
		m.record.Child = m.params.Child.ID()
	}
	if len(intent.Steps) == 0 && !moves && (m.redo == nil || len(m.record.Undo) == 0) {
		// Nothing to write, nothing to move: only the turn has ended.
		m.fill(nil, failed)
		return *res, s.commit(m.first...)
	}
	m.record.Made = s.parents(intent.Steps)
	if err := s.commit(append(m.first, &m.record)...); err != nil {
		return *res, err
	}
	if m.record.Child != "" {
		m.params.Child.done = true
	}
	// From here on nothing is called off: a crash is completed at the next open.
	outcome := s.act(context.WithoutCancel(m.ctx), intent, false)
	done, err := s.settle(&m.record, outcome)
	if err != nil {
		return *res, err
	}
	m.moved = done.Moved
	back := slices.ContainsFunc(outcome.Failed, func(f checkpoints.Failure) bool { return f.Back })
	m.undid = m.moved || back || len(done.Done) > 0
	if c := m.params.Child; m.record.Child != "" && m.moved {
		if err := c.Publish(context.WithoutCancel(m.ctx)); err != nil {
			return *res, err
		}
		res.SessionID = c.ID()
	} else if m.record.Child != "" {
		_ = c.remove() // what stays is removed at the next open (resumeChildren)
	}
	if len(outcome.CalledOff) > 0 || m.params.Fail && !m.undid && len(outcome.Failed) > 0 {
		return *res, failError(outcome.Failed)
	}
	isDone := setOf(done.Done)
	steps := slices.DeleteFunc(slices.Clone(intent.Steps), func(s checkpoints.Step) bool { return !isDone[s.Path] })
	m.fill(steps, append(failed, outcome.Failed...))
	if !m.undid {
		return *res, nil
	}
	kind, what := "rewound", map[string]any{"restored": res.Restored, "deleted": res.Deleted, "failed": noNil(res.Failed)}
	if m.redo != nil {
		kind = "redone"
	} else {
		what["entryId"] = m.record.Target
	}
	s.emit(kind, what)
	return *res, nil
}

// plan looks at the touched paths and decides.
func (m *move) plan() checkpoints.Plan {
	s := m.session
	paths := make([]string, len(m.touched))
	for i, t := range m.touched {
		paths[i] = t.Path
	}
	for i, now := range s.ws.LookAll(paths) {
		m.touched[i].Now = now
	}
	var idle []*touch
	m.touched, idle = settleQuiet(m.touched)
	for _, t := range idle {
		if m.redo != nil || len(t.intervals) > 0 {
			m.settled = append(m.settled, t)
		}
	}
	input := make([]checkpoints.Touched, len(m.touched))
	for i, t := range m.touched {
		input[i] = t.Touched
	}
	on := m.params.OnConflict
	if on == "" || m.params.Fail {
		on = checkpoints.Keep
	}
	plan := checkpoints.NewPlan(input, on, m.read)
	if m.redo != nil { // what a redo takes back is the rewind's
		for i, f := range plan.Failed {
			if f.Code == checkpoints.CodeConflict {
				plan.Failed[i].Message = strings.Replace(f.Message, "since the agent's last write", "since the rewind", 1)
			}
		}
	}
	return plan
}

// read gives the bytes of a state for a merge: kept ones, or what is at a
// touched path now.
func (m *move) read(st checkpoints.State) ([]byte, error) {
	b, err := m.session.blobs.Get(st.Digest, 0)
	if err == nil || !errors.Is(err, blobs.ErrMissing) {
		return b, err
	}
	for _, t := range m.touched {
		if t.Now.State.Same(st) {
			if now, rerr := m.session.ws.Read(t.Path, st.Size); rerr == nil && sha256.Sum256(now) == st.Digest {
				return now, nil
			}
		}
	}
	return nil, err
}

// settle writes what came of an intent and folds it in.
func (s *Session) settle(r *rewindRecord, o checkpoints.Outcome) (*rewoundRecord, error) {
	done := &rewoundRecord{Type: "rewound", ID: r.ID, Done: o.Done}
	if done.Done == nil {
		done.Done = []string{}
	}
	real := func(f checkpoints.Failure) bool { return f.Code.Real() }
	for _, f := range o.Failed {
		// In doubt the intervals are in play: they can be rewound again.
		if f.Back && r.RedoOf != "" {
			done.Done = append(done.Done, f.Path)
			continue
		}
		done.Kept = append(done.Kept, f.Path)
	}
	done.Kept = append(done.Kept, o.CalledOff...)
	wants := r.Conversation == RewindConversation || r.Child != ""
	if r.RedoOf != "" {
		old := s.state.rewinds[r.RedoOf]
		wants = old.moved && old.Conversation == RewindConversation
	}
	done.Moved = wants && len(o.CalledOff) == 0 && !slices.ContainsFunc(o.Failed, real) && !slices.ContainsFunc(r.Failed, real)
	return done, s.commit(done)
}

// noteMerged gives the outside intervals their numbers that take the place of
// what is merged: there is somebody else's part left in it.
func (m *move) noteMerged() {
	next := m.session.state.nextInterval()
	for _, r := range m.first {
		switch r := r.(type) {
		case *beforeRecord:
			next += len(r.Intervals)
		case *outsideRecord:
			next += len(r.Intervals)
		}
	}
	var target map[string]checkpoints.State
	for i := range m.record.Intent.Steps {
		s := &m.record.Intent.Steps[i]
		if !s.Merged || m.redo != nil {
			continue
		}
		if target == nil {
			target = make(map[string]checkpoints.State, len(m.touched))
			for _, t := range m.touched {
				target[t.Path] = t.Target
			}
		}
		to := s.To
		m.record.Merged = append(m.record.Merged, intervalRecord{N: next, Path: s.Path, Before: target[s.Path], After: &to})
		next++
	}
}

// takeOut fills the record's Undo: every interval since the target of each
// path that has not failed.
func (m *move) takeOut(failed []checkpoints.Failure) {
	stays := map[string]bool{}
	for _, f := range failed {
		stays[f.Path] = true
	}
	all := slices.Concat(m.touched, m.settled)
	m.record.Undo = make(map[string][]int, len(all))
	ns := make([]int, 0, len(all)) // one array for all: mostly one of each path
	for _, t := range all {
		if stays[t.Path] {
			continue
		}
		from := len(ns)
		for _, iv := range t.undone {
			ns = append(ns, iv.n)
		}
		m.record.Undo[t.Path] = ns[from:len(ns):len(ns)] // also where nothing is: a redo goes by it
	}
}

// fill makes the result's lists from the steps that were (or would be) done
// and the paths that failed, in first-change order.
func (m *move) fill(steps []checkpoints.Step, failed []checkpoints.Failure) {
	res := &m.result
	stepOf := make(map[string]*checkpoints.Step, len(steps))
	for i := range steps {
		stepOf[steps[i].Path] = &steps[i]
	}
	failureOf := make(map[string]checkpoints.Failure, len(failed))
	for _, f := range failed {
		failureOf[f.Path] = f
	}
	for _, t := range m.touched {
		if t.quiet {
			continue
		}
		if step, ok := stepOf[t.Path]; ok {
			switch {
			case step.Merged:
				res.Merged = append(res.Merged, t.Path)
			case step.To.Kind == checkpoints.Absent:
				res.Deleted = append(res.Deleted, t.Path)
			default:
				res.Restored = append(res.Restored, t.Path)
			}
			if t.unchecked {
				res.Unchecked = append(res.Unchecked, t.Path)
			}
		}
		if f, ok := failureOf[t.Path]; ok {
			res.Failed = append(res.Failed, f)
		}
	}
}

// failError is what onConflict "fail" answers.
func failError(failed []checkpoints.Failure) error {
	e := &Error{Kind: Conflict, Msg: "nothing was changed: " + manyPaths(len(failed)) + " cannot come back, first " + failed[0].Path + " (" + failed[0].Message + ")"}
	for _, f := range failed {
		switch {
		case f.Code == checkpoints.CodeMissingBlob:
			e.Kind = BlobMissing
		case f.Code == checkpoints.CodeDamagedBlob:
			e.Kind = BlobDamaged
		case f.Full:
			e.Kind = StorageFull
		case f.Code == checkpoints.CodeIO:
			e.Kind = StorageFailed
		default:
			continue
		}
		break
	}
	e.Data = map[string]any{"failed": failed}
	return e
}

// parents notes, of each step that makes or removes a path, the directories
// above it as they are before the rewind, so that a redo can bring them back.
func (s *Session) parents(steps []checkpoints.Step) map[string][]checkpoints.Parent {
	made := map[string][]checkpoints.Parent{}
	for _, step := range steps {
		if step.From.Kind == checkpoints.Absent || step.To.Kind == checkpoints.Absent {
			if ps := s.ws.Parents(step.Path); len(ps) > 0 {
				made[step.Path] = ps
			}
		}
	}
	return made
}

// recover completes a rewind that a crash cut off. It runs when the session is
// opened for writing, and asks no hook.
func (s *Session) recover(ctx context.Context) error {
	rw := s.state.pending
	if rw == nil {
		return nil
	}
	outcome := s.act(ctx, rw.Intent, true)
	done, err := s.settle(&rw.rewindRecord, outcome)
	if err != nil {
		return errors.Join(errors.New("a rewind that was cut off could not be completed"), err)
	}
	what := map[string]any{"done": done.Done, "failed": noNil(outcome.Failed)}
	if rw.RedoOf == "" {
		what["entryId"] = rw.Target
	}
	s.emit("recovered", what)
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }

func manyPaths(n int) string {
	if n == 1 {
		return "1 path"
	}
	return itoa(n) + " paths"
}

// noNil is list, for a reader to whom null is no list.
func noNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
