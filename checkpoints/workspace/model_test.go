package workspace

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// scan is what a tree is, looked at as plainly as can be. skip names what is
// not looked into.
func scan(t require.TestingT, dir string, skip func(rel string, d fs.DirEntry) bool) map[string]checkpoints.State {
	all := map[string]checkpoints.State{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		rel = filepath.ToSlash(rel)
		if skip != nil && skip(rel, d) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			all[rel] = checkpoints.State{Kind: checkpoints.Dir, Mode: uint32(info.Mode().Perm())}
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			all[rel] = checkpoints.State{Kind: checkpoints.Symlink, Target: target}
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[rel] = checkpoints.State{Kind: checkpoints.File, Mode: uint32(info.Mode().Perm()), Size: int64(len(content)), Digest: sha256.Sum256(content)}
		}
		return nil
	}))
	return all
}

// names that edits play with: few, so that they meet, and of every kind.
var editNames = []string{"a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "x y", "[id].tsx", "-n", "é", "e\u0301", "new\nline", `back\slash`, "🙂", " sp ", "d/ ", "q\"u"}

// edit does something to the tree as a shell would. What does not work does not.
func edit(t *rapid.T, dir string) {
	name := func() string { return filepath.Join(dir, rapid.SampledFrom(editNames).Draw(t, "name")) }
	content := func() []byte {
		return []byte(strings.Repeat(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "content"), rapid.IntRange(0, 3).Draw(t, "length")))
	}
	path := name()
	switch rapid.IntRange(0, 11).Draw(t, "edit") {
	case 0, 1, 2:
		_ = os.WriteFile(path, content(), 0o644)
	case 3: // of the same size, with the old time put back
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			return
		}
		_ = os.WriteFile(path, []byte(strings.Repeat(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "byte"), int(info.Size()))), 0o644)
		_ = os.Chtimes(path, info.ModTime(), info.ModTime())
	case 4:
		_ = os.MkdirAll(path, 0o755)
	case 5:
		_ = os.RemoveAll(path)
	case 6:
		_ = os.Rename(path, name())
	case 7:
		_ = os.Remove(path)
		_ = os.Symlink(rapid.SampledFrom([]string{"a", "d", "nowhere/x", "nowhere/\xff"}).Draw(t, "target"), path)
	case 8:
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			_ = os.Chmod(path, rapid.SampledFrom([]fs.FileMode{0o700, 0o755, 0o600, 0o644}).Draw(t, "mode"))
		}
	case 9:
		_ = os.Link(path, name())
	case 10: // a file becomes a directory with something in it
		_ = os.RemoveAll(path)
		_ = os.MkdirAll(path, 0o755)
		_ = os.WriteFile(filepath.Join(path, "a"), content(), 0o600)
	case 11:
		_ = os.Chtimes(path, time.Unix(1577836800, 0), time.Unix(1577836800, 0))
	}
}

// Every capture knows the tree as it was, whoever made it, and for as long as
// it is held: the states at each mark and the changes between any two are
// those of a plain look, and every content can be had.
func TestCapturesKnowTheTreeAsItWas(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the edits are those of a unix shell")
	}
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp("", "model")
		require.NoError(rt, err)
		defer os.RemoveAll(base)
		dir := filepath.Join(base, "w")
		require.NoError(rt, os.Mkdir(dir, 0o755))
		// Two processes, one session in each.
		agent := disktest.New()
		var agents []*agentDir
		var spaces []*Workspace
		for i := range 2 {
			a := onDisk(agent, nil)
			a.store.compact = 2000
			defer a.close()
			agents = append(agents, a)
			w, err := a.store.Open(fmt.Sprint("s", i), []string{dir})
			require.NoError(rt, err)
			defer w.Close()
			spaces = append(spaces, w)
		}
		type moment struct {
			mark Mark
			tree map[string]checkpoints.State
		}
		moments := make([][]moment, 2)
		for range rapid.IntRange(2, 12).Draw(rt, "captures") {
			for range rapid.IntRange(0, 6).Draw(rt, "edits") {
				edit(rt, dir)
			}
			who := rapid.IntRange(0, 1).Draw(rt, "who")
			c, err := spaces[who].Capture(context.Background(), CaptureOptions{})
			require.NoError(rt, err)
			require.True(rt, c.Coverage.Complete)
			require.Empty(rt, c.Uncovered)
			require.Empty(rt, c.Lost)
			moments[who] = append(moments[who], moment{c.Mark, scan(rt, dir, nil)})
			if ms := moments[who]; len(ms) > 1 && rapid.IntRange(0, 3).Draw(rt, "release") == 0 {
				drop := rapid.IntRange(1, len(ms)-1).Draw(rt, "below")
				require.NoError(rt, spaces[who].Release(context.Background(), ms[drop].mark))
				moments[who] = ms[drop:]
			}
		}
		for who, ms := range moments {
			w := spaces[who]
			for i, m := range ms {
				states, err := w.States(context.Background(), m.mark, paths(dir, editNames))
				require.NoError(rt, err)
				for n, name := range editNames {
					require.Equal(rt, stateIn(m.tree, name), states[n], "capture %d of %d, %q", i, who, name)
				}
				for _, later := range ms[i:] {
					all, err := w.Changes(context.Background(), m.mark, later.mark)
					require.NoError(rt, err)
					want, got := map[string][2]checkpoints.State{}, map[string][2]checkpoints.State{}
					for rel := range union(m.tree, later.tree) {
						if b, a := stateIn(m.tree, rel), stateIn(later.tree, rel); b != a {
							want[rel] = [2]checkpoints.State{b, a}
						}
					}
					for _, c := range all {
						require.Len(rt, c.Links, 1)
						got[filepath.ToSlash(c.Path[len(dir)+1:])] = [2]checkpoints.State{c.Links[0].Before, c.Links[0].After}
					}
					require.Equal(rt, want, got)
				}
				for rel, s := range m.tree {
					if s.Kind == checkpoints.File {
						require.NoError(rt, agents[0].blobs.Check(s.Digest), rel)
					}
				}
			}
		}
	})
}

func paths(dir string, names []string) []string {
	var all []string
	for _, n := range names {
		all = append(all, filepath.Join(dir, filepath.FromSlash(n)))
	}
	return all
}

func stateIn(tree map[string]checkpoints.State, rel string) checkpoints.State {
	if s, ok := tree[rel]; ok {
		return s
	}
	return checkpoints.State{Kind: checkpoints.Absent}
}

func union(trees ...map[string]checkpoints.State) map[string]bool {
	all := map[string]bool{}
	for _, t := range trees {
		for rel := range t {
			all[rel] = true
		}
	}
	return all
}
