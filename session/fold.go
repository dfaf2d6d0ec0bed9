package session

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/journal"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// state is what a log says: a pure fold over its records in order. apply is
// the only thing that changes it, and sees nothing but the record, so that
// reading the log again gives the same state. Contents of messages are not in
// it; a node says where its line lies.
type state struct {
	head     headerRecord
	revision int64 // records applied
	active   int64 // the newest activity

	nodes map[string]*node
	order []*node // in log order
	leaf  *node   // nil: before the first entry

	turns  map[string]*turn // by the id of the user entry
	open   *turn            // the open turn, if any
	closed bool             // the session was closed cleanly since the open turn's last record
	last   *turn            // the newest turn

	intervals []*interval            // by n-1
	paths     map[string][]*interval // by path, in order; the baseline first
	pathOrder []string               // paths by their first interval

	redo    []*rewind // the newest last
	rewinds map[string]*rewind
	pending *rewind // an intent without an outcome: the log ended in the middle of a rewind

	evicted int // entries with an order below this can no longer be rewound to

	title    string
	labels   map[string]string
	driver   map[string]*stateRecord // the driver's own states by entry
	dirs     []string                // the additional directories
	left     []string                // those it had before and has no more
	wrapped  []Wrapped               // what a wrapped session was called, each id once, the newest last
	earlier  []Wrapped               // in which of the agent's sessions these were before
	settings []Setting               // how the client has set it
	children map[string]bool         // staged sessions that a finished rewind wants published

	mark   workspace.Mark // the newest capture that the log knows of
	epochs []epoch        // what the captures of turns covered
	unseen []*turn        // those whose captures could not see everything
	// boundary is the newest interval when a turn last began or ended: scope
	// "all" undoes what is outside up to there, and calls conflicts what is newer.
	boundary int

	damage []damage
}

// node is an entry in the tree.
type node struct {
	id, parentID string
	parent       *node // nil for the first, and where the parent's line is damaged
	role         Role
	createdAt    int64
	order        int // place among the log's entries
	pos          journal.Pos
	toolCallID   string
	status       string
	keepFrom     string
	dropped      bool   // a rewind took it off the list of checkpoints
	messageID    string // see messageRecord
	// What a listing tells of the branch that ends with it.
	depth    int    // entries
	firstMsg string // the first user message with words in it, and the last one, shortened
	lastMsg  string
}

// turn is what followed a user entry.
type turn struct {
	entry     *node
	intervals []*interval          // in order
	newest    map[string]*interval // by path, in play or not
	ended     bool
	why       string // it ended: endRecord.Why
	// Of a tracked session: the capture from which on its changes are told, and
	// how many of its intervals are of before that.
	mark   workspace.Mark
	sealed int
	blind  *seenRecord // why it is not covered as a whole
	unseen []Uncovered // what its captures could not see, and what else nobody looks at
	dark   bool        // and could not be compared with what others saw
}

// interval is what one turn, or somebody else, did to one path.
type interval struct {
	n       int
	turn    *turn // nil for the baseline and for what is outside
	outside bool
	session string   // of an outside one: whose it is, if that is known
	shared  []string // other sessions whose turn was open too
	order   int      // of the turn's entry
	path    string
	before  checkpoints.State
	after   checkpoints.State // Unknown until fixed
	written bool              // after was fixed by a tool of ours
	temp    string            // of the last write, while the turn is open: see afterState.Temp
	guessed bool              // after was fixed only by the rewind that ended the turn
	seam    bool              // the baseline: somebody else changed the path inside it
	linked  bool              // and nobody did but those that were seen: no seam for scope "all"
	first   *node             // the baseline: the entries of the oldest and the newest turn in it
	last    *node
	along   bool // a directory that came or went only with something in it
	parents []checkpoints.Parent
	err     string
	out     bool // not in play: taken out by a rewind, or void
	void    bool // found to be nothing when its turn ended
}

// rewind is a rewind or redo as its records say.
type rewind struct {
	rewindRecord
	order    int // entries in the log when it was made
	leafFrom *node
	leafTo   *node
	moved    bool
	dropped  []*node                      // what it took off the list
	undo     map[string][]int             // by path: what a redo puts back
	steps    map[string]*checkpoints.Step // by path: what a redo brings back
}

// damage is a line that could not be read.
type damage struct {
	line  int
	order int // entries read before it
	err   error
}

func newState() *state {
	return &state{
		nodes: map[string]*node{}, turns: map[string]*turn{}, paths: map[string][]*interval{},
		rewinds: map[string]*rewind{}, labels: map[string]string{},
		driver: map[string]*stateRecord{}, children: map[string]bool{},
	}
}

// maxGap bounds how many intervals damaged lines can have held.
const maxGap = 1 << 22

// apply folds one record in. An error is a record that does not fit what came
// before it: damage.
func (st *state) apply(r any, pos journal.Pos) error {
	st.revision++
	st.active = max(st.active, activity(r))
	switch r := r.(type) {
	case *headerRecord:
		st.head = *r
		st.enter(r.AdditionalDirectories)
	case *entryRecord:
		return st.applyEntry(r, pos)
	case *beforeRecord:
		return st.applyBefore(r)
	case *afterRecord:
		st.closed = false
		st.redo = nil
		return st.applyAfters(r.Afters, false)
	case *knownRecord:
		return st.applyKnown(r)
	case *endRecord:
		return st.applyEnd(r)
	case *reopenRecord:
		st.closed = false
		if t := st.turns[r.Turn]; t != nil {
			if r.Mark != nil {
				t.mark = r.Mark
				st.noteMark(r.Mark)
			}
			t.unseen = append(t.unseen, r.Unseen...)
			st.noteUnseen(t)
			st.applyRules(t, r.Rules, true)
		}
	case *seenRecord:
		return st.applySeen(r)
	case *outsideRecord:
		return st.applyOutside(r)
	case *rewindRecord:
		return st.applyRewind(r)
	case *rewoundRecord:
		return st.applyRewound(r)
	case *evictRecord:
		return st.applyEvict(r)
	case *forkedRecord:
		return st.applyForked(r)
	case *labelRecord:
		if r.Label == "" {
			delete(st.labels, r.Entry)
		} else {
			st.labels[r.Entry] = r.Label
		}
	case *titleRecord:
		st.title = r.Title
	case *dirsRecord:
		st.enter(r.AdditionalDirectories)
	case *stateRecord:
		return st.applyState(r)
	case *agentRecord:
		st.applyAgent(r)
	case *settingRecord:
		st.applySetting(r)
	case *messageRecord:
		if n := st.nodes[r.Entry]; n != nil { // else its line is damaged
			n.messageID = r.MessageID
		}
	default:
		return fmt.Errorf("no fold for %T", r)
	}
	return nil
}

// noteDamage keeps that a line could not be read or did not fit.
func (st *state) noteDamage(line int, err error) {
	st.damage = append(st.damage, damage{line: line, order: len(st.order), err: err})
	st.pending = nil // what follows an intent and is not its outcome: there is nothing to complete
}

func (st *state) applyEntry(r *entryRecord, pos journal.Pos) error {
	if st.nodes[r.ID] != nil {
		return fmt.Errorf("entry %s is there twice", r.ID)
	}
	parent := st.nodes[r.ParentID]
	if parent == nil && r.ParentID != "" {
		parent = st.leaf // its line is damaged, and most likely hung below this
	}
	n := &node{
		id: r.ID, parentID: r.ParentID, parent: parent, role: r.Role, createdAt: r.CreatedAt,
		order: len(st.order), pos: pos, toolCallID: r.ToolCallID, status: r.Status, keepFrom: r.KeepFrom,
	}
	n.depth = 1
	if parent != nil {
		n.depth, n.firstMsg, n.lastMsg = parent.depth+1, parent.firstMsg, parent.lastMsg
	}
	if r.Role == User {
		n.lastMsg = shorten(blocksText(r.Content), maxTitle)
		n.firstMsg = cmp.Or(n.firstMsg, n.lastMsg)
	}
	st.nodes[n.id] = n
	st.order = append(st.order, n)
	st.leaf = n
	st.tellAgent(r)
	if r.Role != User {
		return nil
	}
	if st.open != nil {
		st.open.end("entry")
	}
	t := &turn{entry: n}
	st.turns[n.id], st.open, st.last, st.closed = t, t, t, false
	st.boundary = len(st.intervals)
	st.redo = nil
	return nil
}

func (st *state) applyForked(r *forkedRecord) error {
	for _, t := range st.turns {
		t.end("fork")
	}
	st.open, st.closed, st.redo = nil, false, nil
	if r.Boundary > 0 {
		st.boundary = r.Boundary
	}
	for _, id := range r.Dropped {
		if n := st.nodes[id]; n != nil {
			n.dropped = true
		}
	}
	if n := st.nodes[r.Evicted]; n != nil {
		st.evicted = max(st.evicted, n.order+1)
	}
	if r.Leaf != "" {
		if st.leaf = st.nodes[r.Leaf]; st.leaf == nil {
			return fmt.Errorf("a fork at entry %s, which is not there", r.Leaf)
		}
	}
	return nil
}

// breaks reports a seam: before is not what after left. An unknown after fits
// anything.
func breaks(after, before checkpoints.State) bool {
	return after.Kind != checkpoints.Unknown && !after.Same(before)
}

// branch lists the entries from the first to leaf, oldest first.
func (st *state) branch(leaf *node) []*node {
	var b []*node
	for n := leaf; n != nil; n = n.parent {
		b = append(b, n)
	}
	slices.Reverse(b)
	return b
}

// targetOrder is the order from which on entries are after the target.
func (st *state) targetOrder(target string) int {
	if n := st.nodes[target]; n != nil && target != Start {
		return n.order
	}
	return -1 // start: the baseline too
}

// listed lists the user entries of the active branch that can be rewound to.
func (st *state) listed() []*node {
	var l []*node
	for _, n := range st.branch(st.leaf) {
		if n.role == User && !n.dropped && n.order >= st.evicted {
			l = append(l, n)
		}
	}
	return l
}

// nextInterval is the n of the next interval.
func (st *state) nextInterval() int { return len(st.intervals) + 1 }

// damagedSince returns the first damage at or after an order: what is needed
// to go back there may be missing.
func (st *state) damagedSince(order int) *damage {
	for i := range st.damage {
		if st.damage[i].order > order {
			return &st.damage[i]
		}
	}
	return nil
}

// enter sets the additional directories.
func (st *state) enter(dirs []string) {
	st.left = slices.Concat(st.left, st.dirs)
	slices.Sort(st.left)
	st.left = slices.DeleteFunc(slices.Compact(st.left), func(dir string) bool { return slices.Contains(dirs, dir) })
	st.dirs = dirs
}

// isBelowAny reports whether path is one of dirs or lies below one.
func isBelowAny(path string, dirs map[string]bool) bool {
	for ; ; path = filepath.Dir(path) {
		if dirs[path] {
			return true
		}
		if path == filepath.Dir(path) {
			return false
		}
	}
}
