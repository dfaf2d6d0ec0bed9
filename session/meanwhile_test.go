package session

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// meanwhile does something once, while a write is made durable in the log: after
// its capture, and before its effect.
func meanwhile(f *faults, do func()) {
	f.fail = func(op, file string) bool {
		if op == "sync" && strings.HasSuffix(path.Base(file), logSuffix) {
			f.fail = nil
			do()
		}
		return false
	}
}

// What somebody saves between the capture of a file and the moment at which a
// tool would replace it is what a rewind brings back: the agent's part alone is
// taken out. An edit is made in what is there.
func TestWhatIsSavedBeforeAWriteIsKept(t *testing.T) {
	b := newBox(t)
	var f faults
	b.withFaults(&f)
	save := func(content string) func() {
		return func() {
			require.NoError(t, os.WriteFile(b.path("a")+"~", []byte(content), 0o644))
			require.NoError(t, os.Rename(b.path("a")+"~", b.path("a")))
		}
	}
	b.put("a", "one\ntwo\n")
	s := b.create(false)
	e := b.prompt(s, "one")
	meanwhile(&f, save("one\ntwo\nmine\n"))
	_, err := s.Edit(t.Context(), b.path("a"), []Replacement{{OldText: "two", NewText: "TWO"}})
	require.NoError(t, err)
	require.Nil(t, f.fail)
	b.has("a", "one\nTWO\nmine\n")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e})
	b.has("a", "one\ntwo\nmine\n")

	e = b.prompt(s, "two")
	meanwhile(&f, save("mine alone\n"))
	b.write(s, "a", "the agent's\n")
	b.has("a", "the agent's\n")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e})
	b.has("a", "mine alone\n")

	// So it is for one that appears, one that goes, and a mode.
	for name, c := range map[string]struct {
		was  string
		do   func(path string)
		left string
	}{
		"appears": {"", func(p string) { require.NoError(t, os.WriteFile(p, []byte("mine\n"), 0o644)) }, "mine\n"},
		"goes":    {"v0\n", func(p string) { require.NoError(t, os.Remove(p)) }, ""},
	} {
		if c.was != "" {
			b.put(name, c.was)
		}
		e = b.prompt(s, name)
		meanwhile(&f, func() { c.do(b.path(name)) })
		b.write(s, name, "the agent's\n")
		b.has(name, "the agent's\n")
		b.end(s)
		b.rewind(s, RewindParams{EntryID: e})
		left, err := os.ReadFile(b.path(name))
		require.Equal(t, c.left, string(left), name)
		require.Equal(t, c.left == "", err != nil, name)
	}
}

// Who never stops saving is told of, and not written over.
func TestAFileThatNeverRestsIsNotWritten(t *testing.T) {
	b := newBox(t)
	var f faults
	b.withFaults(&f)
	b.put("a", "v0")
	s := b.create(false)
	b.prompt(s, "one")
	n := 0
	f.fail = func(op, file string) bool {
		if op == "sync" && strings.HasSuffix(path.Base(file), logSuffix) {
			n++
			require.NoError(t, os.WriteFile(b.path("a"), []byte(strings.Repeat("mine", n)), 0o644))
		}
		return false
	}
	_, err := s.Write(t.Context(), b.path("a"), []byte("the agent's"))
	refused(t, Conflict, err)
	f.fail = nil
	left, err := os.ReadFile(b.path("a"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(left), "mine"))
	entries, err := os.ReadDir(filepath.Dir(b.path("a")))
	require.NoError(t, err)
	for _, e := range entries {
		require.NotContains(t, e.Name(), ".oino-")
	}
}
