package session

import (
	"context"
	"maps"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// Start is the entry id of the state before the session's first turn.
const Start = "start"

// Conversation says what a rewind does with the conversation.
type Conversation string

const (
	KeepConversation   Conversation = "keep"
	RewindConversation Conversation = "rewind" // the leaf moves to the entry's parent
	ForkConversation   Conversation = "fork"   // a new session holds the entries before it
)

// RewindParams is what to rewind and how.
type RewindParams struct {
	EntryID      string // a user entry of the active branch, or Start
	Conversation Conversation
	DryRun       bool
	Paths        []string // only these, and what is below them; nil: all
	NoFiles      bool     // no path at all: only the conversation moves
	ScopeAll     bool     // scope "all": outside changes too
	OnConflict   checkpoints.OnConflict
	Fail         bool // onConflict "fail": any failed path is an error before anything changes
	// Context is the lines around a change in a dry run's files.
	Context int
	// Child is the staged session of ForkConversation: published once the
	// files are back, discarded if it does not come to that.
	Child *Child
}

// OutsideChange is a change that no turn of this session made.
type OutsideChange struct {
	Path      string             `json:"path"`
	Change    checkpoints.Change `json:"change"`
	SessionID string             `json:"sessionId,omitempty"`
}

// RewindResult is what a rewind or redo did, or would do.
type RewindResult struct {
	Restored, Deleted, Merged, Unchecked []string
	Failed                               []checkpoints.Failure
	Uncovered                            []Uncovered
	Outside                              []OutsideChange
	OutsideMore                          int
	Turns                                int
	Remaining                            int
	Text                                 string
	HasText                              bool // the conversation was rewound or forked from a user entry
	SessionID                            string
	Cancelled                            bool
	Reason                               string
	Files                                []checkpoints.FileDiff // of a dry run
}

// CheckRewind reports why p could not be carried out as far as ids and
// conversation go (the entry's kind, whether it is listed), without looking at files.
func (s *Session) CheckRewind(p RewindParams) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, err := s.target(p)
	return err
}

// Rewind brings back every path that a turn at or after the entry touched.
func (s *Session) Rewind(ctx context.Context, p RewindParams) (RewindResult, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return RewindResult{}, err
	}
	defer end()
	target, err := s.target(p)
	if err != nil {
		return RewindResult{}, err
	}
	first, sp, err := s.upToNow(ctx, p)
	if err != nil {
		return RewindResult{}, err
	}
	now, err := s.state.with(first)
	if err != nil {
		return RewindResult{}, err
	}
	var all []*touch
	if !p.NoFiles {
		all = now.touched(sp)
	}
	touched, err := only(s.ws, all, p.Paths)
	if err != nil {
		return RewindResult{}, err
	}
	m := move{
		session: s, ctx: ctx, params: p, touched: append(touched, now.hollows(sp, touched)...),
		record: rewindRecord{
			Type: "rewind", ID: s.reg.newID(), At: s.now(), Target: p.EntryID, Conversation: p.Conversation, Some: p.Paths != nil,
			Undo: map[string][]int{},
		},
	}
	m.first = first
	if s.tracker != nil {
		m.result.tellOutside(now.outsideOf(sp, all), p)
	}
	m.result.Uncovered = now.blindSince(sp.order)
	// At the start of the conversation there is nowhere to move it to.
	moves := p.Conversation == RewindConversation && (target != nil || s.state.leaf != nil)
	if m.wantsMove = moves || p.Conversation == ForkConversation; !m.wantsMove {
		m.record.Conversation = KeepConversation
	}
	if m.wantsMove && target != nil {
		if m.result.Text, err = s.EntryText(target.id); err != nil {
			return RewindResult{}, err
		}
	}
	res, err := m.run()
	if err != nil {
		return RewindResult{}, err
	}
	res.Turns = s.countTurns(&m, touched)
	if m.moved {
		res.HasText = target != nil
	} else {
		res.Text = ""
	}
	return res, nil
}

// countTurns is how many listed user entries were undone: those that were
// listed before and lie at or after the target; with paths, those that lost an
// interval.
func (s *Session) countTurns(m *move, touched []*touch) int {
	order := s.state.targetOrder(m.params.EntryID)
	failed := map[string]bool{}
	for _, f := range m.result.Failed {
		failed[f.Path] = true
	}
	lost := map[string]bool{}
	for _, t := range touched {
		for _, iv := range t.undone {
			if iv.turn != nil && m.undid && !failed[t.Path] {
				lost[iv.turn.entry.id] = true
			}
		}
	}
	n := 0
	for _, l := range m.before {
		if l.order >= order && (m.params.Paths == nil || lost[l.id]) {
			n++
		}
	}
	return n
}

// Redo undoes the newest rewind that was not undone. Its OnConflict and Fail
// are those of p; the rest of p is ignored.
func (s *Session) Redo(ctx context.Context, p RewindParams) (RewindResult, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return RewindResult{}, err
	}
	defer end()
	st := s.state
	if len(st.redo) == 0 {
		return RewindResult{}, refuse(NothingToRedo, "session %s has no rewind to redo; a new message or recorded change ends redo", s.id)
	}
	old := st.redo[len(st.redo)-1]
	if d := st.damagedSince(old.order - 1); d != nil {
		return RewindResult{}, &Error{Kind: LogDamaged, Msg: "line " + itoa(d.line) + " of the log of session " + s.id + " is damaged, and the redo may need it", Err: d.err}
	}
	m := move{
		session: s, ctx: ctx, params: RewindParams{OnConflict: p.OnConflict, Fail: p.Fail},
		record:    rewindRecord{Type: "rewind", ID: s.reg.newID(), At: s.now(), RedoOf: old.ID, Undo: map[string][]int{}},
		redo:      old,
		wantsMove: old.moved && old.Conversation == RewindConversation,
	}
	for _, path := range slices.Sorted(maps.Keys(old.undo)) {
		t := &touch{quiet: true}
		for _, n := range old.undo[path] {
			iv, err := st.interval(n)
			if err != nil || iv.n != n {
				return RewindResult{}, &Error{Kind: LogDamaged, Msg: "what the redo would put back was in a damaged line of the log of session " + s.id, Err: err}
			}
			t.undone = append(t.undone, iv)
			t.quiet = t.quiet && iv.along
		}
		t.Path = path
		if step, ok := old.steps[path]; ok {
			t.Target, t.Left, t.Parents = step.Saved, step.To, old.Made[path]
			t.Parts = []checkpoints.Part{{Before: step.Saved, After: step.To}}
		} else {
			m.settled = append(m.settled, t)
			continue
		}
		m.touched = append(m.touched, t)
	}
	res, err := m.run()
	if err != nil {
		return RewindResult{}, err
	}
	for _, x := range s.state.redo {
		if x == old {
			res.Remaining = len(old.undo)
		}
	}
	res.Turns = max(0, len(s.state.listed())-len(m.before))
	return res, nil
}
