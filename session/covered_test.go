package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// What a path was before the rules covered it is not known, and what it was
// when they began to is not taken for it.
func TestRulesThatLetInMoreFromTurnToTurn(t *testing.T) {
	for _, how := range []string{"the user's", "the agent's"} {
		t.Run(how, func(t *testing.T) {
			b := newBox(t)
			b.sh(`printf '*.log\n' >.gitignore; printf l0 >x.log; printf a0 >a`)
			s := b.createTracked()
			e1 := b.prompt(s, "one")
			b.sh(`printf l1 >x.log; printf a1 >a`)
			if how == "the agent's" {
				b.sh(`: >.gitignore`)
			}
			b.end(s)
			if how == "the user's" {
				b.sh(`: >.gitignore`)
			}
			e2 := b.prompt(s, "two")
			b.sh(`printf l2 >x.log; printf n >n.log; printf a2 >a`)
			b.end(s)
			e3 := b.prompt(s, "three")
			b.sh(`printf l3 >x.log`)
			b.end(s)
			for range 2 {
				failed := func(r RewindResult) map[string]checkpoints.Code {
					codes := map[string]checkpoints.Code{}
					for _, f := range r.Failed {
						codes[f.Path] = f.Code
					}
					return codes
				}
				r := b.rewind(s, RewindParams{EntryID: e1, OnConflict: checkpoints.Overwrite})
				require.Equal(t, map[string]checkpoints.Code{b.path("x.log"): checkpoints.CodeNotCovered, b.path("n.log"): checkpoints.CodeNotCovered}, failed(r))
				require.Contains(t, r.Restored, b.path("a"))
				b.has("a", "a0")
				b.has("x.log", "l3")
				b.has("n.log", "n")
				b.redo(s)
				r = b.rewind(s, RewindParams{EntryID: e3})
				require.Empty(t, r.Failed)
				b.has("x.log", "l2")
				r = b.rewind(s, RewindParams{EntryID: e2})
				require.Empty(t, r.Failed)
				b.has("x.log", "l1")
				b.lacks("n.log")
				b.redo(s)
				b.redo(s)
				b.has("x.log", "l3")
				b.has("n.log", "n")
				s = b.restart(s)
			}
		})
	}
}

// Rules that leave out more take nothing from what was known, and a tool's
// word of what they leave out counts as it does with tracking "files".
func TestRulesThatLeaveOutMoreAndWhatToolsName(t *testing.T) {
	b := newBox(t)
	b.sh(`printf l0 >x.log; mkdir out; printf o0 >out/o; printf 'out\n' >.gitignore`)
	s := b.createTracked()
	e1 := b.prompt(s, "one")
	b.sh(`printf '*.log\nout\n' >.gitignore; printf l1 >x.log`)
	b.end(s)
	e2 := b.prompt(s, "two")
	b.write(s, "out/o", "o1")
	b.sh(`printf l2 >x.log`)
	b.end(s)
	b.sh(`: >.gitignore`)
	b.prompt(s, "three")
	b.sh(`printf l3 >x.log; printf o2 >out/o`)
	b.end(s)
	require.Empty(t, b.rewind(s, RewindParams{EntryID: e2}).Failed)
	b.has("x.log", "l1")
	b.has("out/o", "o0")
	b.redo(s)
	r := b.rewind(s, RewindParams{EntryID: e1, OnConflict: checkpoints.Overwrite})
	require.Empty(t, r.Failed)
	b.has("x.log", "l0")
	b.has("out/o", "o0")
}
