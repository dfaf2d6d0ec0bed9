package checkpoints

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// keepText puts a content into the workspace's store and returns its state.
func keepText(t testing.TB, w *Workspace, text string) State {
	t.Helper()
	_, err := w.blobs.Put([]byte(text))
	require.NoError(t, err)
	return fileState(0o644, text)
}

func TestDiffShowsTheWayFromTheTargetToNow(t *testing.T) {
	bin := "a\x00b"
	huge := strings.Repeat("line\n", maxDiffed/5+1)
	w, base := workspace(t, tree{
		"f": file("1\n2\n3\n4\n5\n6\n7\n8\nnine\n"), "new": file("a\nb\n"), "unfinished": file("x"), "mode": mfile(0o755, "1\n"), "bin": file(bin),
		"l": link("there"), "d/e": file("e"), "huge": file(huge), "latin1": file("caf\xe9\nB\n"), "empty": file(""), "crlf": file("a\r\nB\r\n"), "q\"\n": file("x\n"), "pipe": fifo(),
	})
	now := func(name string) State { return w.Look(base + "/" + name).State }
	lost := fileState(0o644, "never kept\n")

	for name, c := range map[string]struct {
		target State
		want   FileDiff
	}{
		"f":          {keepText(t, w, "one\n2\n3\n4\n5\n6\n7\n8\n9\n"), FileDiff{Change: Modified, Additions: 2, Deletions: 2, Patch: "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-one\n+1\n 2\n@@ -8,2 +8,2 @@\n 8\n-9\n+nine\n"}},
		"new":        {none, FileDiff{Change: Created, Additions: 2, Patch: "--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+a\n+b\n"}},
		"gone":       {keepText(t, w, "a\n"), FileDiff{Change: Deleted, Deletions: 1, Patch: "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"}},
		"unfinished": {keepText(t, w, "x\n"), FileDiff{Change: Modified, Additions: 1, Deletions: 1, Patch: "--- a/unfinished\n+++ b/unfinished\n@@ -1 +1 @@\n-x\n+x\n\\ No newline at end of file\n"}},
		"mode":       {keepText(t, w, "1\n"), FileDiff{Change: Modified}},
		"bin":        {keepText(t, w, "text\n"), FileDiff{Change: Modified, Binary: true}},
		"l":          {State{Kind: Symlink, Target: "here"}, FileDiff{Change: Modified, Additions: 1, Deletions: 1, Patch: "--- a/l\n+++ b/l\n@@ -1 +1 @@\n-here\n\\ No newline at end of file\n+there\n\\ No newline at end of file\n"}},
		"d":          {keepText(t, w, "was a file\n"), FileDiff{Change: Modified}},
		"d/e":        {fileState(0o644, "e"), FileDiff{}},
		"huge":       {keepText(t, w, "small\n"), FileDiff{Change: Modified}},
		"latin1":     {keepText(t, w, "caf\xe9\nb\n"), FileDiff{Change: Modified, Additions: 1, Deletions: 1, Binary: true}},
		"empty":      {none, FileDiff{Change: Created}},
		"crlf":       {keepText(t, w, "a\r\nb\r\n"), FileDiff{Change: Modified, Additions: 1, Deletions: 1, Patch: "--- a/crlf\n+++ b/crlf\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"}},
		"q\"\n":      {none, FileDiff{Change: Created, Additions: 1, Patch: "--- /dev/null\n+++ \"b/q\\\"\\n\"\n@@ -0,0 +1 @@\n+x\n"}},
		"pipe":       {keepText(t, w, "a\n"), FileDiff{Change: Modified}},
		"lost":       {lost, FileDiff{Change: Deleted}},
	} {
		c.want.Path = base + "/" + name
		if c.want.Change == "" {
			require.Equal(t, c.want, w.Diff(base+"/"+name, c.target, now(name), 1), name)
			continue
		}
		require.Equal(t, c.want, w.Diff(base+"/"+name, c.target, now(name), 1), name)
	}
	require.Equal(t, FileDiff{Path: base + "/f", Change: Modified}, w.Diff(base+"/f", lost, now("f"), 3), "what was lost has no patch")
	require.Equal(t, FileDiff{Path: base + "/f", Change: Modified}, w.Diff(base+"/f", skip, now("f"), 3))
	d := w.Diff(base+"/f", keepText(t, w, "1\n2\n3\n4\n5\n6\n7\n8\n9\n"), now("f"), -1)
	require.Equal(t, "--- a/f\n+++ b/f\n@@ -9 +9 @@\n-9\n+nine\n", d.Patch)

	// The file has become another since: the one that was seen is not shown for it.
	was := now("new")
	plantOne(t, base+"/new", file("other\n"))
	require.Equal(t, FileDiff{Path: base + "/new", Change: Created}, w.Diff(base+"/new", none, was, 3))
}

func TestTwoTextsWithLittleInCommonAreComparedInTime(t *testing.T) {
	var a, b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&a, "%d\n", i*7919%1000)
		fmt.Fprintf(&b, "%d\n", i*104729%1000)
	}
	hunks := diffLines(splitLines([]byte(a.String())), splitLines([]byte(b.String())))
	require.NotEmpty(t, hunks)
}

// git takes the patch, and makes the one text of the other with it. With one line
// of context or more: without any, git may remove another line than the patch
// says, from its own patches too ("c\nc" without its last line).
func TestGitTakesThePatch(t *testing.T) {
	needGit(t)
	w, base := workspace(t, tree{})
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > 40 {
			return
		}
		x, y := someText("x").Draw(rt, "x"), someText("y").Draw(rt, "y")
		if x == y {
			return
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(base+"/f", []byte(y), 0o644))
		d := w.Diff(base+"/f", keepText(t, w, x), fileState(0o644, y), rapid.IntRange(1, 4).Draw(rt, "context"))
		require.NoError(t, os.WriteFile(dir+"/f", []byte(x), 0o644))
		require.NoError(t, os.WriteFile(dir+"/p", []byte(d.Patch), 0o644))
		cmd := exec.Command("git", "apply", "--whitespace=nowarn", "p")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			rt.Fatalf("%s\n%q\n%q\n%s", out, x, y, d.Patch)
		}
		got, err := os.ReadFile(dir + "/f")
		require.NoError(t, err)
		if string(got) != y {
			rt.Fatalf("%q, want %q\n%s", got, y, d.Patch)
		}
	})
}
