package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// A fork knows what was outside between the turns that it holds: scope "all"
// brings the whole tree back, as in its source, which may be gone.
func TestScopeAllInAFork(t *testing.T) {
	b := newBox(t)
	b.sh(`printf a0 >a; printf b0 >b; printf c0 >c; printf d0 >d`)
	s := b.createTracked()
	e1 := b.prompt(s, "one")
	b.sh(`printf a1 >a`)
	b.end(s)
	b.sh(`printf mine >b; printf n >n`)
	e2 := b.prompt(s, "two")
	b.sh(`printf c1 >c`)
	b.end(s)
	e3 := b.prompt(s, "three")
	b.end(s)
	b.sh(`printf late >d`)
	b.rewind(s, RewindParams{EntryID: e3}) // after which its log knows of d
	whole, early := b.fork(s, ""), b.fork(s, e1)
	at := func(f *Session) map[string]string {
		r, err := f.Rewind(t.Context(), RewindParams{EntryID: e1, ScopeAll: true, DryRun: true})
		require.NoError(t, err)
		all := map[string]string{}
		for _, p := range r.Restored {
			all[p] = "restored"
		}
		for _, p := range r.Deleted {
			all[p] = "deleted"
		}
		for _, f := range r.Failed {
			all[f.Path] = string(f.Code)
		}
		return all
	}
	want := map[string]string{b.path("a"): "restored", b.path("b"): "restored", b.path("c"): "restored", b.path("n"): "deleted", b.path("d"): "conflict"}
	require.Equal(t, want, at(s))
	require.Equal(t, want, at(whole))
	require.Equal(t, map[string]string{b.path("a"): "restored", b.path("b"): "restored", b.path("n"): "deleted"}, at(early))
	require.Equal(t, []OutsideChange{{Path: b.path("b"), Change: checkpoints.Modified}, {Path: b.path("n"), Change: checkpoints.Created}},
		b.rewind(early, RewindParams{EntryID: e1, DryRun: true}).Outside)

	require.NoError(t, b.reg.Delete(t.Context(), s.ID()))
	b.collect(CollectParams{})
	whole = b.restart(whole)
	again := b.fork(whole, "")
	r := b.rewind(again, RewindParams{EntryID: e2, ScopeAll: true})
	require.Equal(t, []string{b.path("c")}, r.Restored)
	r = b.rewind(again, RewindParams{EntryID: e1, ScopeAll: true})
	require.Len(t, r.Failed, 1)
	b.has("a", "a0")
	b.has("b", "b0")
	b.lacks("n")
	b.redo(again)
	b.has("b", "mine")
}

// What its source's captures could not see, a fork does not know either, and
// it says so.
func TestAForkSaysWhatWasNotCovered(t *testing.T) {
	b := newBox(t)
	b.sh(`printf '*.log\n' >.gitignore; printf l0 >x.log; printf a0 >a`)
	s := b.createTracked()
	b.reg.trees = nil
	b.reg.tracked.Home = b.dir
	blind := b.createTracked()
	e1, e := b.prompt(s, "one"), b.prompt(blind, "one")
	b.sh(`printf a1 >a; : >.gitignore`)
	b.end(s)
	b.end(blind)
	b.prompt(s, "two")
	b.sh(`printf l1 >x.log`)
	b.end(s)
	fork := b.fork(b.fork(s, ""), "")
	r := b.rewind(fork, RewindParams{EntryID: e1, OnConflict: checkpoints.Overwrite})
	require.Len(t, r.Failed, 1)
	require.Equal(t, b.path("x.log"), r.Failed[0].Path)
	require.Equal(t, checkpoints.CodeNotCovered, r.Failed[0].Code)
	require.Len(t, b.rewind(b.fork(blind, ""), RewindParams{EntryID: e}).Uncovered, 1)
}
