package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// With paths, the turns of a rewind are those that lost an interval by it: a
// conflict that is kept loses none, and neither does a path that was back
// already where nothing else is done. A dry run counts the same.
func TestTurnsOfARewindOfPaths(t *testing.T) {
	b := newBox(t)
	b.put("a", "a0")
	b.put("b", "b0")
	s := b.create(false)
	one := b.prompt(s, "one")
	b.write(s, "a", "a1")
	b.prompt(s, "two")
	b.write(s, "b", "b1")
	b.end(s)
	b.put("a", "the user's")
	both := func(p RewindParams) int {
		p.EntryID, p.DryRun = one, true
		dry := b.rewind(s, p)
		p.DryRun = false
		real := b.rewind(s, p)
		require.Equal(t, dry.Turns, real.Turns)
		return real.Turns
	}
	require.Zero(t, both(RewindParams{Paths: []string{b.path("a")}}), "a conflict is kept")
	b.put("a", "a0")
	require.Zero(t, both(RewindParams{Paths: []string{b.path("a")}}), "nothing was to be done")
	require.Len(t, b.checkpointIDs(s), 2)
	b.put("a", "the user's")
	require.Equal(t, 1, both(RewindParams{Paths: []string{b.path("a"), b.path("b")}}), "one of them is back")
	b.redo(s)
	require.Equal(t, 2, both(RewindParams{}), "without paths: all that were listed")
}
