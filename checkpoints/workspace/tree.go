package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// tree is one tracked root: its stat cache, which is the fold of its journal,
// and what is known of its captures. Sessions of this process share it.
type tree struct {
	store *Store
	root  string // its real path
	dir   string // workspaces/<key>
	refs  int    // guarded by store.mu

	door chan struct{} // holds one token: whoever has it may touch what follows

	made     bool // dir is there and its name is durable
	file     string
	gen      uint64
	writer   *journal.Writer
	head     headLine
	own      bool  // what is folded was written here
	end      int64 // of what is folded
	short    int64 // how long the journal was when this process began it; 0: another did
	table    *table
	waiting  gather // of a capture whose own line is not read yet
	captures []capture
	rules    map[string]*rules
	holds    map[string][]uint64
	lost     string   // why captures that were promised are gone, until it is told
	queued   [][]byte // releases to be written with the next lines

	unwritten []unwritten // in order; it outlives the tree (Store.left)
	enough    int         // how many of them are worth forgetting some

	walk      uint32   // number of the last walk of this process
	walkRules *rules   // what it found; nil if it failed
	walkHeld  []string // the held rules that it followed
}

// errOther is another journal under the name of one that was read before.
var errOther = errors.New("another journal")

// capture is what the journal says of one capture, but for its records.
type capture struct {
	captureLine
	end    int64      // of its line
	after  []turnLine // turns that began or ended elsewhere since, before the next
	claims int        // lines of claims since, before the next
}

// reset forgets everything that came from the journal.
func (t *tree) reset() {
	if t.writer != nil {
		t.writer.Close()
	}
	t.writer, t.file, t.gen, t.end, t.short = nil, "", 0, 0, 0
	t.head, t.table, t.waiting = headLine{}, newTable(), gather{}
	t.captures, t.rules, t.holds = nil, map[string]*rules{}, map[string][]uint64{}
	t.walk, t.walkRules, t.walkHeld = 0, nil, nil
}

// enter waits until nobody else in this process uses the tree.
func (t *tree) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t.door <- struct{}{}:
		return func() { <-t.door }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lock waits until nobody else on this machine captures or claims in the tree,
// and reads what others have written since.
func (t *tree) lock(ctx context.Context) (unlock func(), err error) {
	leave, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	release, err := t.lockDir(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.refresh(); err != nil {
		return nil, errors.Join(err, release())
	}
	return func() { _ = release(); leave() }, nil
}

// lockDir takes the lock, making the tree's directory where it is not there: it
// may have been pruned.
func (t *tree) lockDir(ctx context.Context) (release func() error, err error) {
	for {
		if err := t.makeDir(); err != nil {
			return nil, t.error("making the directory of", err)
		}
		release, err := lockFile(ctx, t.store.root, t.dir+"/"+lockName)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			t.made = false
			continue
		}
		if err != nil {
			return nil, t.error("locking", err)
		}
		return release, nil
	}
}

func (t *tree) error(doing string, err error) error {
	return fmt.Errorf("%s the captures of %s: %w", doing, t.root, err)
}

// last is the newest capture, or nil.
func (t *tree) last() *capture {
	if len(t.captures) == 0 {
		return nil
	}
	return &t.captures[len(t.captures)-1]
}

// capture finds a capture that is still held, or nil.
func (t *tree) capture(seq uint64) *capture {
	i, ok := slices.BinarySearchFunc(t.captures, seq, func(c capture, s uint64) int {
		switch {
		case c.Seq < s:
			return -1
		case c.Seq > s:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &t.captures[i]
}

// oldest is the oldest capture that anybody holds; the newest if nobody does.
func (t *tree) oldest() uint64 {
	low := uint64(math.MaxUint64)
	for _, seqs := range t.holds {
		for _, s := range seqs {
			low = min(low, s)
		}
	}
	if last := t.last(); last != nil {
		low = min(low, last.Seq)
	}
	return low
}

// fold makes the tree what a line says. Lines that are folded already are
// passed over.
func (t *tree) fold(l journal.Line) error {
	if l.Pos.Offset < t.end && l.Pos.Offset > 0 {
		return nil
	}
	if l.Err != nil {
		return fmt.Errorf("%w: %w", errDamaged, l.Err)
	}
	line, err := decodeLine(l.Object)
	if err != nil {
		return err
	}
	if t.end > 0 && l.Pos.Offset == 0 {
		if h, ok := line.(*headLine); !ok || h.ID != t.head.ID {
			return errOther
		}
		return nil
	}
	if err := t.foldLine(line, l.Pos); err != nil {
		return err
	}
	t.end = l.Pos.Offset + int64(l.Pos.Length) + 1
	return nil
}

func (t *tree) foldLine(line any, pos journal.Pos) error {
	if h, ok := line.(*headLine); ok != (pos.Offset == 0) {
		return fmt.Errorf("%w: its first line is not the first", errDamaged)
	} else if ok {
		return t.foldHead(h)
	}
	switch l := line.(type) {
	case *partLine:
		return t.foldPart(l)
	case *rulesJSON:
		t.rules[l.ID] = rulesOf(*l)
	case *captureLine:
		return t.foldCapture(l, pos)
	case *turnLine:
		if last := t.last(); last != nil {
			last.after = append(last.after, *l)
		}
	case *claimLine:
		if last := t.last(); last != nil {
			last.claims++
		}
	case *releaseLine:
		t.foldRelease(l)
	}
	return nil
}

func (t *tree) foldHead(h *headLine) error {
	if h.Version > formatVersion {
		return t.error("reading", ErrNewer)
	}
	if h.Version < 1 || h.Root != t.root {
		return fmt.Errorf("%w: it is of %s", errDamaged, h.Root)
	}
	t.head = *h
	t.holds = map[string][]uint64{}
	for session, seqs := range h.Holds {
		t.holds[session] = slices.Clone(seqs)
	}
	return nil
}

// foldPart keeps a part for its capture, or puts one of the base in the table.
func (t *tree) foldPart(l *partLine) error {
	if l.Type == "base" {
		return t.apply(l)
	}
	return t.waiting.part(l)
}

func (t *tree) apply(l *partLine) error {
	var rs []record
	err := l.eachRecord(func(r record) { rs = append(rs, r) })
	t.table.apply(rs)
	return err
}

func (t *tree) foldCapture(l *captureLine, pos journal.Pos) error {
	if last := t.last(); last != nil && l.Seq <= last.Seq {
		return fmt.Errorf("%w: capture %d after %d", errDamaged, l.Seq, last.Seq)
	}
	c := capture{captureLine: *l, end: pos.Offset + int64(pos.Length) + 1}
	if t.own {
		l.Parts = 0 // its records are applied already
	}
	if err := t.waiting.take(l, t.apply); err != nil {
		return err
	}
	t.captures = append(t.captures, c)
	if l.Seq != t.head.Base { // whose holds the head tells
		t.holds[l.Session] = append(t.holds[l.Session], l.Seq)
	}
	return nil
}

func (t *tree) foldRelease(l *releaseLine) {
	seqs := slices.DeleteFunc(t.holds[l.Session], func(s uint64) bool { return s < l.Below })
	if len(seqs) == 0 || l.Gone {
		delete(t.holds, l.Session)
	} else {
		t.holds[l.Session] = seqs
	}
	if last := t.last(); l.Gone && last != nil {
		last.after = append(last.after, turnLine{Session: l.Session}) // its turn is over
	}
}

// turnsBefore are the turns that are open when capture i of t.captures is made: since which capture, by session.
func (t *tree) turnsBefore(i int) map[string]uint64 {
	open := maps.Clone(t.head.Turns)
	if open == nil {
		open = map[string]uint64{}
	}
	for _, c := range t.captures[:i] {
		c.turns(open)
	}
	return open
}

// turns brings the open turns behind the capture.
func (c *capture) turns(open map[string]uint64) {
	if c.End || c.Begin {
		delete(open, c.Session)
	}
	if c.Begin {
		open[c.Session] = c.Seq
	}
	for _, l := range c.after {
		l.turns(open, c.Seq)
	}
}

func (l *turnLine) turns(open map[string]uint64, seq uint64) {
	if delete(open, l.Session); l.Begin {
		open[l.Session] = seq
	}
}

// missingFile reports that a journal is not there.
func missingFile(err error) bool { return errors.Is(err, fs.ErrNotExist) }
