package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// states is what paths were at a mark, by path from the first root.
func statesOf(t testing.TB, w *Workspace, m Mark, rels ...string) []checkpoints.State {
	t.Helper()
	s, err := w.States(context.Background(), m, paths(w.Roots()[0], rels))
	require.NoError(t, err)
	return s
}

func uncovered(r checkpoints.Reason) checkpoints.State {
	return checkpoints.State{Kind: checkpoints.Uncovered, Reason: r}
}

// coarse makes a file system's clock tick in seconds, two a tick.
func coarse(_ string, s *stat) error {
	s.mtime -= s.mtime % 2e9
	s.ctime -= s.ctime % 2e9
	return nil
}

func TestAWriteWithinTheClocksGrainIsSeen(t *testing.T) {
	dir := t.TempDir()
	reads := map[string]int{}
	var mu sync.Mutex
	m := &hooked{lstat: coarse, read: func(rel string) { mu.Lock(); reads[rel]++; mu.Unlock() }}
	now := time.Now()
	a := onDisk(disktest.New(), func(c *Config) { c.machine, c.Now = m, func() time.Time { return now } })
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"a": "one", "b": "two"})
	before := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"a": "two"}) // the stat is the same, if it lies within a tick
	after := captured(t, w, CaptureOptions{})
	require.Equal(t, []told{{"a", checkpoints.File, checkpoints.File}}, changes(t, w, before.Mark, after.Mark))

	now = now.Add(time.Hour)
	captured(t, w, CaptureOptions{}) // reads once more, and believes it from now on
	clear(reads)
	captured(t, w, CaptureOptions{})
	require.Empty(t, reads, "what has settled is not read again")
}

func TestASameSizeEditWithTheOldTimePutBackIsSeen(t *testing.T) {
	dir := t.TempDir()
	a := onDisk(disktest.New(), later)
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"a": "one", "b": "one"})
	old := time.Unix(1577836800, 0)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	before := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"a": "two", "b.new": "two"})
	require.NoError(t, os.Rename(filepath.Join(dir, "b.new"), filepath.Join(dir, "b")))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	after := captured(t, w, CaptureOptions{})
	require.Equal(t, []told{{"a", checkpoints.File, checkpoints.File}, {"b", checkpoints.File, checkpoints.File}}, changes(t, w, before.Mark, after.Mark))
}

// A directory that cannot be seen for a while loses nothing of what is known
// in it, and nothing in it is taken for what it was before that.
func TestADirectoryThatCannotBeReadIsUncoveredNotEmpty(t *testing.T) {
	for name, fault := range map[string]func(h *hooked, err error){
		"open": func(h *hooked, err error) {
			h.openDir = func(rel string) error {
				if rel == "d" {
					return err
				}
				return nil
			}
		},
		"list": func(h *hooked, err error) {
			h.names = func(rel string) error {
				if rel == "d" {
					return err
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := &hooked{}
			a := onDisk(disktest.New(), func(c *Config) { c.machine = h })
			w := a.open(t, "s", dir)
			put(t, dir, map[string]string{"a": "1", "d/x": "1", "d/y": "1", "d/e/z": "1"})
			first := captured(t, w, CaptureOptions{})
			fault(h, syscall.EACCES)
			put(t, dir, map[string]string{"a": "2"})
			second := captured(t, w, CaptureOptions{})
			require.Equal(t, []Uncovered{{Path: filepath.Join(dir, "d"), Reason: checkpoints.Unreadable, Err: "permission denied"}}, second.Uncovered)
			require.Equal(t, []told{{"a", checkpoints.File, checkpoints.File}}, changes(t, w, first.Mark, second.Mark))
			require.Equal(t, []checkpoints.State{uncovered(checkpoints.Unreadable), uncovered(checkpoints.Unreadable), uncovered(checkpoints.Unreadable)},
				statesOf(t, w, second.Mark, "d/x", "d/new", "d/e/z"))
			*h = hooked{}
			put(t, dir, map[string]string{"d/x": "2", "d/new": "2"})
			third := captured(t, w, CaptureOptions{})
			require.Equal(t, []told{{"d/new", checkpoints.Uncovered, checkpoints.File}, {"d/x", checkpoints.Uncovered, checkpoints.File}}, changes(t, w, second.Mark, third.Mark))
			require.Equal(t, []told{{"a", checkpoints.File, checkpoints.File}, {"d/new", checkpoints.Absent, checkpoints.File}, {"d/x", checkpoints.File, checkpoints.File}},
				changes(t, w, first.Mark, third.Mark), "the first mark knows")
		})
	}
}

func TestAFileThatCannotBeReadIsUncoveredUntilItCan(t *testing.T) {
	dir := t.TempDir()
	h := &hooked{}
	a := onDisk(disktest.New(), func(c *Config) { c.machine = h })
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"a": "1", "b": "1"})
	h.open = func(rel string) error {
		if rel == "a" {
			return syscall.EIO
		}
		return nil
	}
	first := captured(t, w, CaptureOptions{})
	require.Equal(t, []Uncovered{{Path: filepath.Join(dir, "a"), Reason: checkpoints.Unreadable, Err: "input/output error"}}, first.Uncovered)
	require.Equal(t, checkpoints.Uncovered, statesOf(t, w, first.Mark, "a")[0].Kind)
	h.open = nil
	put(t, dir, map[string]string{"a": "2"})
	second := captured(t, w, CaptureOptions{})
	require.Empty(t, second.Uncovered)
	require.Equal(t, []told{{"a", checkpoints.Uncovered, checkpoints.File}}, changes(t, w, first.Mark, second.Mark))
}

func TestARootThatCannotBeSeenIsNotTakenForAnEmptyOne(t *testing.T) {
	dir := t.TempDir()
	h := &hooked{}
	a := onDisk(disktest.New(), func(c *Config) { c.machine = h })
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"a": "1"})
	first := captured(t, w, CaptureOptions{})
	for _, fail := range []*hooked{
		{openTop: func() error { return fs.ErrNotExist }},
		{openDir: func(string) error { return syscall.EACCES }},
		{names: func(string) error { return syscall.EIO }},
	} {
		*h = *fail
		c := captured(t, w, CaptureOptions{})
		require.Equal(t, Coverage{Reason: "unreadable", Root: dir}, c.Coverage)
		require.Zero(t, c.Mark[0].Seq)
		require.Empty(t, changes(t, w, first.Mark, c.Mark))
	}
	*h = hooked{}
	put(t, dir, map[string]string{"b": "1"})
	c := captured(t, w, CaptureOptions{})
	require.True(t, c.Coverage.Complete)
	require.Equal(t, []told{{"b", checkpoints.Absent, checkpoints.File}}, changes(t, w, first.Mark, c.Mark))
}

func TestAFileThatKeepsChangingIsUncovered(t *testing.T) {
	dir := t.TempDir()
	h := &hooked{}
	a := onDisk(disktest.New(), func(c *Config) { c.machine = h })
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"log": "", "a": "1"})
	h.read = func(rel string) {
		if rel == "log" {
			f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("line\n")
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	c := captured(t, w, CaptureOptions{})
	require.Equal(t, []Uncovered{{Path: filepath.Join(dir, "log"), Reason: checkpoints.Unreadable, Err: "it kept changing while it was read"}}, c.Uncovered)
	h.read = nil
	c = captured(t, w, CaptureOptions{})
	require.Empty(t, c.Uncovered)
}

func TestFilesTooLargeToKeepCostNothingUntilTheyMatter(t *testing.T) {
	dir := t.TempDir()
	reads := map[string]int{}
	var mu sync.Mutex
	h := &hooked{open: func(rel string) error { mu.Lock(); reads[rel]++; mu.Unlock(); return nil }}
	a := onDisk(disktest.New(), func(c *Config) { c.machine = h; c.Limits.MaxKept = 10; c.Limits.MaxBytes = 50 })
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"big": strings.Repeat("x", 1000), "small": "1"})
	first := captured(t, w, CaptureOptions{Begin: true})
	require.True(t, first.Coverage.Complete, "it does not count")
	require.Equal(t, []Uncovered{{Path: filepath.Join(dir, "big"), Reason: checkpoints.TooLarge}}, first.Uncovered)
	require.Zero(t, reads["big"])
	put(t, dir, map[string]string{"big": strings.Repeat("y", 1000), "small": strings.Repeat("z", 20), "new": strings.Repeat("n", 30)})
	second := captured(t, w, CaptureOptions{End: true})
	require.Zero(t, reads["big"], "what it was cannot be had back, so nobody needs to know what it is")
	require.Equal(t, []told{{"big", checkpoints.Uncovered, checkpoints.Uncovered}, {"new", checkpoints.Absent, checkpoints.Uncovered}, {"small", checkpoints.File, checkpoints.Uncovered}},
		changes(t, w, first.Mark, second.Mark))
	for _, s := range statesOf(t, w, second.Mark, "new", "small") {
		require.NotZero(t, s.Digest, "what it was can be had back, if it still is this")
	}
	put(t, dir, map[string]string{"small": "1", "big": "1", "between": strings.Repeat("b", 30)})
	third := captured(t, w, CaptureOptions{})
	require.Equal(t, []told{{"between", checkpoints.Absent, checkpoints.Uncovered}, {"big", checkpoints.Uncovered, checkpoints.File}, {"new", checkpoints.Absent, checkpoints.Uncovered}}, changes(t, w, first.Mark, third.Mark))
	require.Zero(t, reads["between"], "it came while no turn was open, so that no rewind is about it")
}

// Where nothing can have changed that does not show, the stamp of a file too
// large tells what a turn left, and nothing of it is read.
func TestAFileTooLargeToKeepIsKnownByItsStamp(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	reads := 0
	h := &hooked{open: func(rel string) error {
		if rel != "small" {
			mu.Lock()
			reads++
			mu.Unlock()
		}
		return nil
	}}
	late := time.Duration(0)
	a := onDisk(disktest.New(), func(c *Config) {
		c.machine, c.Limits.MaxKept = h, 10
		c.Now = func() time.Time { return time.Now().Add(late) }
	})
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"grows": "1"})
	first := captured(t, w, CaptureOptions{Begin: true})
	reads = 0
	put(t, dir, map[string]string{"grows": strings.Repeat("g", 30), "new": strings.Repeat("n", 30)})
	late = time.Minute // after the clocks have ticked
	second := captured(t, w, CaptureOptions{End: true, Begin: true})
	require.Zero(t, reads)
	require.Equal(t, []told{{"grows", checkpoints.File, checkpoints.Uncovered}, {"new", checkpoints.Absent, checkpoints.Uncovered}}, changes(t, w, first.Mark, second.Mark))
	left := statesOf(t, w, second.Mark, "grows", "new")
	ws, err := checkpoints.OpenWorkspace(checkpoints.Config{Roots: []string{dir}, AgentDir: "/agent", Blobs: a.blobs, MaxKept: 10})
	require.NoError(t, err)
	defer ws.Close()
	for i, name := range []string{"grows", "new"} {
		known, ok := ws.Recognize(filepath.Join(dir, name), left[i])
		require.True(t, ok)
		require.True(t, known.Same(ws.Look(filepath.Join(dir, name)).State))
		require.True(t, known.Same(left[i]))
	}
	// Another turn's change of one, of the same size and with the old time.
	info, err := os.Stat(filepath.Join(dir, "new"))
	require.NoError(t, err)
	put(t, dir, map[string]string{"new": strings.Repeat("m", 30)})
	require.NoError(t, os.Chtimes(filepath.Join(dir, "new"), info.ModTime(), info.ModTime()))
	_, ok := ws.Recognize(filepath.Join(dir, "new"), left[1])
	require.False(t, ok)
	third := captured(t, w, CaptureOptions{End: true})
	require.Equal(t, []told{{"new", checkpoints.Uncovered, checkpoints.Uncovered}}, changes(t, w, second.Mark, third.Mark))
	require.Zero(t, reads)
	require.False(t, left[1].Same(statesOf(t, w, third.Mark, "new")[0]))
	require.True(t, left[1].Same(statesOf(t, w, second.Mark, "new")[0]), "no seam where nothing has changed")
}

func TestNothingNamedGitAndNothingOfTheAgentDirectoryIsEntered(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{".git/HEAD": "x", ".GIT/x": "", "sub/.git": "gitdir: x", "sub/a": "", "agent/deep/x": "", "agentic/x": ""})
	opened := map[string]bool{}
	var mu sync.Mutex
	h := &hooked{openDir: func(rel string) error { mu.Lock(); opened[rel] = true; mu.Unlock(); return nil }}
	agent := filepath.Join(dir, "agent")
	a := openAgentDir(t, agent, func(c *Config) { c.machine = h })
	w := a.open(t, "s", dir)
	c := captured(t, w, CaptureOptions{})
	require.Equal(t, map[string]bool{"": true, "sub": true, "agentic": true}, opened)
	require.Equal(t, uncovered(checkpoints.Excluded), statesOf(t, w, c.Mark, "agent/deep/x")[0])
	require.Equal(t, uncovered(checkpoints.Excluded), statesOf(t, w, c.Mark, ".git/HEAD")[0])
	v := a.open(t, "t", agent)
	require.Equal(t, Coverage{Reason: "excluded", Root: agent}, captured(t, v, CaptureOptions{}).Coverage)
}

func TestDeepTrees(t *testing.T) {
	dir := t.TempDir()
	// Deeper than a path may be long: made step by step.
	d, err := os.OpenRoot(dir)
	require.NoError(t, err)
	name := strings.Repeat("n", 200)
	for range 30 {
		require.NoError(t, d.Mkdir(name, 0o755))
		next, err := d.OpenRoot(name)
		require.NoError(t, err)
		d.Close()
		d = next
	}
	require.NoError(t, d.WriteFile("leaf", []byte("1"), 0o600))
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "s", dir)
	first := captured(t, w, CaptureOptions{})
	require.Empty(t, first.Uncovered)
	require.NoError(t, d.WriteFile("leaf", []byte("2"), 0o600))
	d.Close()
	second := captured(t, w, CaptureOptions{})
	rel := strings.Repeat(name+"/", 30) + "leaf"
	require.Equal(t, []told{{rel, checkpoints.File, checkpoints.File}}, changes(t, w, first.Mark, second.Mark))
}

func TestTheBudgetIsSaidAtOnceAndRecovers(t *testing.T) {
	for name, limits := range map[string]Limits{"files": {25, 1 << 30, 100}, "bytes": {1000, 60, 100}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := &hooked{}
			a := onDisk(disktest.New(), func(c *Config) { c.Limits, c.machine = limits, h })
			w := a.open(t, "s", dir)
			for i := range 10 {
				put(t, dir, map[string]string{fmt.Sprintf("d%d/a", i): "1", fmt.Sprintf("big%d", i): strings.Repeat("x", 200), fmt.Sprintf("ignored/%d/x", i): "123"})
			}
			put(t, dir, map[string]string{".gitignore": "ignored\n"})
			put(t, dir, map[string]string{"more/a": strings.Repeat("x", 40), "more/b": strings.Repeat("x", 40)})
			if name == "files" {
				put(t, dir, map[string]string{"more/1": "", "more/2": "", "more/3": "", "more/4": "", "more/5": "", "more/6": ""})
			}
			h.open = func(rel string) error {
				if rel != ignoreName {
					t.Errorf("%s was read although the tree is over its budget", rel)
				}
				return nil
			}
			c := captured(t, w, CaptureOptions{})
			require.Equal(t, Coverage{Reason: "budget", Root: dir}, c.Coverage)
			require.Zero(t, c.Mark[0].Seq)
			h.open = nil
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "more")))
			first := captured(t, w, CaptureOptions{})
			require.True(t, first.Coverage.Complete)

			// Inside a turn: known paths are compared, new ones uncovered.
			put(t, dir, map[string]string{"d0/a": "2"})
			require.NoError(t, os.Remove(filepath.Join(dir, "d1/a")))
			for i := range 40 {
				put(t, dir, map[string]string{fmt.Sprintf("new/%02d", i): "12345"})
			}
			second := captured(t, w, CaptureOptions{})
			require.Equal(t, Coverage{Reason: "budget", Root: dir}, second.Coverage)
			got := changes(t, w, first.Mark, second.Mark)
			require.Contains(t, got, told{"d0/a", checkpoints.File, checkpoints.File})
			require.Contains(t, got, told{"d1/a", checkpoints.File, checkpoints.Absent})
			require.NotContains(t, got, told{"new/39", checkpoints.Absent, checkpoints.File})
			require.Equal(t, uncovered(checkpoints.Budget), statesOf(t, w, second.Mark, "new/39")[0])
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "new")))
			third := captured(t, w, CaptureOptions{})
			require.True(t, third.Coverage.Complete)
			put(t, dir, map[string]string{"n": "1"})
			fourth := captured(t, w, CaptureOptions{})
			require.Equal(t, []told{{"n", checkpoints.Absent, checkpoints.File}}, changes(t, w, third.Mark, fourth.Mark))
		})
	}
}

func TestHomeAndTheTopAreNeverTracked(t *testing.T) {
	home := t.TempDir()
	a := onDisk(disktest.New(), func(c *Config) { c.Home = home })
	require.Equal(t, "home", captured(t, a.open(t, "s", home), CaptureOptions{}).Coverage.Reason)
	require.Equal(t, "home", captured(t, a.open(t, "s", filepath.Dir(home)), CaptureOptions{}).Coverage.Reason)
	require.Equal(t, "root", captured(t, a.open(t, "s", "/"), CaptureOptions{}).Coverage.Reason)
	put(t, home, map[string]string{"project/a": ""})
	require.True(t, captured(t, a.open(t, "s", filepath.Join(home, "project")), CaptureOptions{}).Coverage.Complete)
}
