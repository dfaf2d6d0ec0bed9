package session

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// small is a box that keeps few checkpoints.
func small(t *testing.T, checkpoints int) *box {
	b := newBox(t)
	b.openRegistry(Limits{MaxCheckpoints: checkpoints, MaxSnapshotBytes: 1 << 20, MaxMessageBytes: 1 << 20})
	return b
}

// Scope "all" goes back to the start past turns that are evicted: what was
// outside before, between and behind them is known as before, also in a fork,
// after a restart and after what nobody needs was collected.
func TestScopeAllGoesBackPastEvictedTurns(t *testing.T) {
	for _, last := range []int{3, 4, 9} { // of few and of many turns that are folded one after the other
		b := small(t, 2)
		b.sh(`for f in before between behind own gone; do printf v0 >$f; done`)
		start := b.tree()
		s := b.createTracked()
		turn := func(script string) {
			b.prompt(s, "go")
			b.sh(script)
			b.end(s)
		}
		turn(`printf a1 >own; printf a1 >between; printf a1 >behind`)
		b.sh(`printf u1 >before`)
		turn(`printf a2 >own`)
		b.sh(`printf u2 >before; printf u2 >between; rm gone`)
		turn(`printf a3 >before; printf a3 >between`)
		b.sh(`printf u3 >behind; printf u3 >new`)
		turn(`printf a4 >own; printf a4 >new; printf a4 >gone`)
		for i := range last {
			turn(fmt.Sprintf(`printf %d >t%d`, i, i))
		}
		end := b.tree()
		for _, which := range []string{"as it was", "restarted", "collected", "forked"} {
			switch which {
			case "restarted":
				s = b.restart(s)
			case "collected":
				b.collect(CollectParams{})
			case "forked":
				s = b.fork(s, "")
			}
			r := b.rewind(s, RewindParams{EntryID: Start, ScopeAll: true})
			require.Empty(t, r.Failed, which)
			require.Equal(t, start, b.tree(), which)
			b.redo(s)
			require.Equal(t, end, b.tree(), which)
		}
		// Scope "turns" knows the user's part, and keeps it.
		r := b.rewind(s, RewindParams{EntryID: Start})
		var kept []string
		for _, f := range r.Failed {
			kept = append(kept, f.Path)
		}
		require.ElementsMatch(t, []string{b.path("between"), b.path("behind")}, kept)
		b.has("before", "u2")
		b.has("new", "u3")
		b.has("own", "v0")
		b.lacks("gone")
	}
}

// What changed between two turns that are evicted, and nobody saw, is a seam
// for every scope.
func TestASeamOfEvictedTurnsThatNobodySaw(t *testing.T) {
	b := small(t, 1)
	s := b.create(false)
	b.put("a", "v0")
	for i := range 4 {
		b.prompt(s, "go")
		b.write(s, "a", fmt.Sprint(i))
		b.end(s)
		if i == 0 {
			b.put("a", "mine")
		}
	}
	require.Len(t, b.rewind(s, RewindParams{EntryID: Start, ScopeAll: true}).Failed, 1)
}

// A fork says which paths are ahead of it, those of evicted turns too.
func TestAheadOfAForkAreEvictedTurnsToo(t *testing.T) {
	b := small(t, 2)
	s := b.create(false)
	var es []string
	for i := range 5 {
		es = append(es, b.prompt(s, "go"))
		b.write(s, fmt.Sprintf("f%d", i), "1")
		b.write(s, "all", fmt.Sprint(i))
		b.end(s)
	}
	for range 2 {
		require.Equal(t, []string{b.path("all"), b.path("f1"), b.path("f2"), b.path("f3"), b.path("f4")}, s.Ahead(es[:1]))
		require.Equal(t, []string{b.path("all"), b.path("f3"), b.path("f4")}, s.Ahead(es[:3]))
		require.Len(t, s.Ahead(nil), 6)
		require.Empty(t, s.Ahead(es))
		s = b.restart(s)
	}
}
