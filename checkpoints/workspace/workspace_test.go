package workspace

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// agentDir is an agent directory and what is open in it.
type agentDir struct {
	root  disk.Root
	blobs *blobs.Store
	store *Store
}

// openAgentDir opens dir as a process would; set may change what the store is
// made with.
func openAgentDir(t testing.TB, dir string, set func(*Config)) *agentDir {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	root, err := disk.Open(dir)
	require.NoError(t, err)
	a := &agentDir{root: root, blobs: blobs.Open(root)}
	c := Config{Root: root, AgentDir: dir, Blobs: a.blobs, Limits: DefaultLimits}
	if set != nil {
		set(&c)
	}
	a.store = New(c)
	t.Cleanup(a.close)
	return a
}

// onDisk opens the agent directory of a disk in memory as a process would.
func onDisk(f *disktest.FS, set func(*Config)) *agentDir {
	a := &agentDir{root: f.Root("/agent")}
	a.blobs = blobs.Open(a.root)
	c := Config{Root: a.root, AgentDir: "/agent", Blobs: a.blobs, Limits: DefaultLimits}
	if set != nil {
		set(&c)
	}
	a.store = New(c)
	return a
}

func (a *agentDir) close() {
	a.blobs.Close()
	a.root.Close()
}

func (a *agentDir) open(t testing.TB, session string, roots ...string) *Workspace {
	t.Helper()
	w, err := a.store.Open(session, roots)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func captured(t testing.TB, w *Workspace, o CaptureOptions) Capture {
	t.Helper()
	c, err := w.Capture(context.Background(), o)
	require.NoError(t, err)
	return c
}

// put makes files of a tree; a name with a slash at the end is a directory.
func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if name[len(name)-1] == '/' {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
}

// told is a change as a test writes it.
type told struct {
	path          string
	before, after checkpoints.Kind
}

func changes(t testing.TB, w *Workspace, from, to Mark) []told {
	t.Helper()
	all, err := w.Changes(context.Background(), from, to)
	require.NoError(t, err)
	var short []told
	for _, c := range all {
		rel, err := filepath.Rel(w.Roots()[0], c.Path)
		require.NoError(t, err)
		short = append(short, told{filepath.ToSlash(rel), c.Links[0].Before.Kind, c.Links[len(c.Links)-1].After.Kind})
	}
	return short
}

func TestACaptureTellsWhatChanged(t *testing.T) {
	dir, agent := t.TempDir(), t.TempDir()
	put(t, dir, map[string]string{"a": "1", "b": "2", "d/c": "3", "e/": "", ".gitignore": "*.o\nout/\n", "x.o": "", "out/y": ""})
	a := openAgentDir(t, agent, nil)
	w := a.open(t, "s1", dir)
	c1 := captured(t, w, CaptureOptions{Begin: true})
	require.True(t, c1.Coverage.Complete)
	require.Empty(t, c1.Uncovered)
	c2 := captured(t, w, CaptureOptions{})
	require.Empty(t, changes(t, w, c1.Mark, c2.Mark))
	put(t, dir, map[string]string{"a": "2", "d/n": "new", "z.o": "", "out/z": ""})
	require.NoError(t, os.Remove(filepath.Join(dir, "b")))
	require.NoError(t, os.Remove(filepath.Join(dir, "e")))
	c3 := captured(t, w, CaptureOptions{End: true})
	require.Equal(t, []told{
		{"a", checkpoints.File, checkpoints.File}, {"b", checkpoints.File, checkpoints.Absent},
		{"d/n", checkpoints.Absent, checkpoints.File}, {"e", checkpoints.Dir, checkpoints.Absent},
	}, changes(t, w, c1.Mark, c3.Mark))
	all, err := w.Changes(context.Background(), c1.Mark, c3.Mark)
	require.NoError(t, err)
	content, err := a.blobs.Get(all[0].Links[0].Before.Digest, 0)
	require.NoError(t, err)
	require.Equal(t, "1", string(content))
	states, err := w.States(context.Background(), c1.Mark, []string{filepath.Join(dir, "b"), filepath.Join(dir, "d/n"), filepath.Join(dir, "x.o"), filepath.Join(dir, "out/q")})
	require.NoError(t, err)
	require.Equal(t, []checkpoints.Kind{checkpoints.File, checkpoints.Absent, checkpoints.Uncovered, checkpoints.Uncovered}, []checkpoints.Kind{states[0].Kind, states[1].Kind, states[2].Kind, states[3].Kind})

	// Another process reads what this one wrote.
	b := openAgentDir(t, agent, nil)
	v := b.open(t, "s1", dir)
	require.Equal(t, changes(t, w, c1.Mark, c3.Mark), changes(t, v, c1.Mark, c3.Mark))
	put(t, dir, map[string]string{"q": "1"})
	c4 := captured(t, v, CaptureOptions{Begin: true})
	require.Equal(t, []told{{"q", checkpoints.Absent, checkpoints.File}}, changes(t, v, c3.Mark, c4.Mark))
	require.Equal(t, []told{{"q", checkpoints.Absent, checkpoints.File}}, changes(t, w, c3.Mark, c4.Mark))
}
