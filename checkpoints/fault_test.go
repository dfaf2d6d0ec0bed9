package checkpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// plantOn makes the tree in r, durably.
func (tr tree) plantOn(t testing.TB, r disk.Root) {
	t.Helper()
	names := sortedNames(tr)
	for _, name := range names {
		require.NoError(t, disk.MkdirAll(r, path.Dir(name), 0o755))
		kind, rest, _ := strings.Cut(tr[name], " ")
		switch kind {
		case "file":
			mode, content, _ := strings.Cut(rest, " ")
			m, err := strconv.ParseUint(mode, 8, 32)
			require.NoError(t, err)
			f, err := r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			require.NoError(t, err)
			_, err = f.Write([]byte(content))
			require.NoError(t, err)
			require.NoError(t, f.Chmod(fileMode(uint32(m))))
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
		case "link":
			require.NoError(t, r.Symlink(rest, name))
		case "dir":
			if err := r.Mkdir(name, 0o755); !errors.Is(err, fs.ErrExist) {
				require.NoError(t, err)
			}
		}
		for dir := path.Dir(name); ; dir = path.Dir(dir) {
			require.NoError(t, r.SyncDir(dir))
			if dir == "." {
				break
			}
		}
	}
	for _, name := range slices.Backward(names) {
		if mode, ok := strings.CutPrefix(tr[name], "dir "); ok {
			m, err := strconv.ParseUint(mode, 8, 32)
			require.NoError(t, err)
			require.NoError(t, r.Chmod(name, fileMode(uint32(m))))
			require.NoError(t, r.SyncDir(name))
		}
	}
}

// treeOn is what is in r.
func treeOn(t testing.TB, r disk.Root) tree {
	t.Helper()
	tr := tree{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := disk.ReadDir(r, dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			info, err := r.Lstat(name)
			require.NoError(t, err)
			switch kindOf(info) {
			case Dir:
				tr[name] = mdir(modeOf(info))
				walk(name)
			case Symlink:
				target, err := r.Readlink(name)
				require.NoError(t, err)
				tr[name] = link(target)
			case File:
				content, err := disk.ReadFile(r, name)
				require.NoError(t, err)
				tr[name] = mfile(modeOf(info), string(content))
			default:
				tr[name] = fifo()
			}
		}
	}
	walk(".")
	return tr
}

// openOn opens a workspace over a disk in memory.
func openOn(t testing.TB, f *disktest.FS, kept *memory) *Workspace {
	t.Helper()
	w, err := OpenWorkspace(Config{Roots: []string{"/w"}, MaxKept: 1 << 20, OpenRoot: f.OpenRoot, TempNames: func() string { return "tmp" }})
	require.NoError(t, err)
	w.blobs = kept
	return w
}

// A turn that did a bit of everything.
var (
	beforeTurn = tree{
		"edited": file("v0"), "removed": mfile(0o600, "v0"), "chmod.sh": mfile(0o755, "x"), "link": link("edited"),
		"toFile": dir(), "toFile/a": file("a"), "toFile/s": dir(), "toFile/s/b": file("b"),
		"toDir": file("was a file"), "toLink": file("was a file"), "gone": dir(), "gone/e": dir(), "gone/e/f": file("f"),
		"closed": mdir(0o555), "closed/f": mfile(0o444, "v0"), "reclosed": mdir(0o500), "reclosed/f": file("v0"), "stays": file("stays"),
		"moved": file("m"), "dirToLink": mdir(0o700), "dirToLink/x": file("x"), "empty": dir(),
	}
	afterTurn = tree{
		"edited": file("v1"), "chmod.sh": mfile(0o644, "x"), "link": link("stays"), "new": file("n"), "new2": dir(), "new2/d": dir(), "new2/d/e": file("n"),
		"toFile": file("now a file"), "toDir": dir(), "toDir/a": file("a"), "toDir/s": dir(), "toDir/s/b": link("b"), "toLink": link("x"),
		"closed": mdir(0o555), "closed/f": mfile(0o444, "v1"), "closed/new": file("n"), "reclosed": mdir(0o755), "reclosed/f": file("v1"), "stays": file("stays"),
		"moved2": file("m"), "dirToLink": link("stays"),
	}
)

// scene is the disk after the turn, and what a session knows of it.
type scene struct {
	fs      *disktest.FS
	kept    *memory
	touched []Touched
}

// newScene plays the turn from a to b. The paths that only hold others are not
// touched, unless they become something else.
func newScene(t testing.TB, a, b tree) *scene {
	t.Helper()
	s := &scene{fs: disktest.New(), kept: newMemory()}
	a.plantOn(t, s.fs.Root("/w"))
	w := openOn(t, s.fs, s.kept)
	all := map[string]string{}
	for _, tr := range []tree{a, b} {
		for name := range tr {
			all[name] = ""
		}
	}
	for _, name := range sortedNames(all) {
		if a[name] == b[name] {
			continue
		}
		if aKind, bKind, _ := kinds(a[name], b[name]); (aKind == "dir" || aKind == "") && (bKind == "dir" || bKind == "") && aKind != bKind && holds(with(a, b), name) {
			continue // came or went with what it held
		}
		c, err := w.Capture("/w/" + name)
		require.NoError(t, err)
		s.touched = append(s.touched, Touched{Path: "/w/" + name, Target: c.State, Parents: c.Parents})
	}
	s.fs = disktest.New()
	b.plantOn(t, s.fs.Root("/w"))
	w = openOn(t, s.fs, s.kept)
	for i := range s.touched {
		s.touched[i].Left = w.Look(s.touched[i].Path).State
	}
	return s
}

func kinds(a, b string) (string, string, bool) {
	x, _, _ := strings.Cut(a, " ")
	y, _, _ := strings.Cut(b, " ")
	return x, y, x == y
}

func holds(tr tree, dir string) bool {
	for name := range tr {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// again is the scene on a disk of its own.
func (s *scene) again(t testing.TB, b tree) *scene {
	c := &scene{fs: disktest.New(), kept: &memory{kept: s.kept.kept}, touched: slices.Clone(s.touched)}
	b.plantOn(t, c.fs.Root("/w"))
	return c
}

func (s *scene) rewind(t testing.TB, w *Workspace) (Outcome, []Failure) {
	for i := range s.touched {
		s.touched[i].Now = w.Look(s.touched[i].Path)
	}
	p := NewPlan(s.touched, Keep, never)
	in, failed, err := w.Prepare(t.Context(), p)
	require.NoError(t, err)
	o := w.Act(t.Context(), in, false)
	return o, append(append(p.Failed, failed...), o.Failed...)
}

// requireOldOrNew checks that each path is as it was or as it shall be, and
// that there is nothing else. What it returns is what is there.
func requireOldOrNew(t testing.TB, got, a, b tree, what string) {
	t.Helper()
	for name, is := range got {
		if is == a[name] || is == b[name] {
			continue
		}
		if strings.HasPrefix(is, "dir ") && (holds(a, name) || holds(b, name)) && strings.Contains("dir 0755 dir 0700", is) && a[name] != b[name] {
			continue // a directory under way
		}
		t.Fatalf("%s: %s is %q, was %q, should be %q", what, name, is, b[name], a[name])
	}
	for name := range with(a, b) {
		if _, there := got[name]; !there && a[name] != "" && b[name] != "" && !holds(with(a, b), path.Dir(name)) {
			t.Fatalf("%s: %s is lost: %v", what, name, got)
		}
	}
}

func TestTheWholeTurnComesBackOnAnyDisk(t *testing.T) {
	s := newScene(t, beforeTurn, afterTurn)
	o, failed := s.rewind(t, openOn(t, s.fs, s.kept))
	require.Empty(t, failed)
	require.NotEmpty(t, o.Done)
	require.Equal(t, beforeTurn, treeOn(t, s.fs.Root("/w")))
}

// Each operation fails once, with each sort of failure. What could not be done
// is told, keeps what it had, and works the next time.
func TestNoFaultOfTheDiskBreaksARewind(t *testing.T) {
	scene := newScene(t, beforeTurn, afterTurn)
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC, syscall.EACCES} {
		swallowed := map[string]int{}
		for n := 1; ; n++ {
			what := fmt.Sprintf("operation %d: %v", n, errno)
			s := scene.again(t, afterTurn)
			w := openOn(t, s.fs, s.kept)
			var op disktest.Op
			count := 0
			s.fs.FailIf(func(o disktest.Op) error {
				if errno == syscall.ENOSPC && !o.Write {
					return nil
				}
				if count++; count == n {
					op = o
					return errno
				}
				return nil
			})
			o, failed := s.rewind(t, w)
			s.fs.FailIf(nil)
			if op == (disktest.Op{}) {
				require.Empty(t, failed)
				break // every operation has failed once
			}
			what += fmt.Sprintf(" (%s %s)", op.Kind, op.Name)
			got := treeOn(t, s.fs.Root("/w"))
			requireOldOrNew(t, got, beforeTurn, afterTurn, what)
			for name := range got {
				require.NotContains(t, name, ".oino-", what)
			}
			for _, p := range o.Done {
				name := strings.TrimPrefix(p, "/w/")
				require.Equal(t, beforeTurn[name], got[name], "%s: %s is said to be done", what, name)
			}
			for _, f := range failed {
				name := strings.TrimPrefix(f.Path, "/w/")
				require.NotEmpty(t, f.Message)
				require.Equal(t, f.Full, f.Code == CodeIO && errno == syscall.ENOSPC, "%s: %+v", what, f)
				if f.Back {
					require.Equal(t, beforeTurn[name], got[name], "%s: %s is in doubt: %s", what, name, f.Message)
				} else {
					require.Equal(t, afterTurn[name], got[name], "%s: %s failed: %s", what, name, f.Message)
				}
			}
			if len(failed) == 0 {
				swallowed[op.Kind]++
				require.Equal(t, beforeTurn, got, "%s: nothing failed", what)
			}
			// The cause is gone: the rest comes back.
			_, failed = s.rewind(t, w)
			require.Empty(t, failed, what)
			require.Equal(t, beforeTurn, treeOn(t, s.fs.Root("/w")), what)
		}
		t.Logf("%v was got over at: %v", errno, swallowed)
	}
}

// The power is cut after each write. Whatever the disk kept of what was not
// synced, the next Act of the same intent completes the plan.
func TestAPowerCutAtAnyMomentIsCompleted(t *testing.T) {
	scene := newScene(t, beforeTurn, afterTurn)
	for k := 0; ; k++ {
		s := scene.again(t, afterTurn)
		w := openOn(t, s.fs, s.kept)
		for i := range s.touched {
			s.touched[i].Now = w.Look(s.touched[i].Path)
		}
		in, failed, err := w.Prepare(t.Context(), NewPlan(s.touched, Keep, never))
		require.NoError(t, err)
		require.Empty(t, failed)
		logged, err := json.Marshal(in)
		require.NoError(t, err)
		s.fs.CutAt(k)
		w.Act(t.Context(), in, false)
		cut := s.fs.Cut()
		for _, keep := range []int{0, 30, 70, 100} {
			what := fmt.Sprintf("cut after write %d, %d %% kept", k, keep)
			after := s.fs.AfterPowerCut(disktest.Keep(uint64(k*keep), keep))
			requireNothingLost(t, treeOn(t, after.Root("/w")), what)
			var in Intent
			require.NoError(t, json.Unmarshal(logged, &in))
			w := openOn(t, after, s.kept)
			o := w.Act(t.Context(), in, true)
			require.Empty(t, o.Failed, what)
			require.Len(t, o.Done, len(in.Steps), what)
			require.Equal(t, beforeTurn, treeOn(t, after.Root("/w")), what)
			require.Equal(t, beforeTurn, treeOn(t, after.AfterPowerCut(nil).Root("/w")), "%s: and that is durable", what)

			o = w.Act(t.Context(), in, true) // once more is harmless
			require.Empty(t, o.Failed, what)
			require.Len(t, o.Done, len(in.Steps), what)
			require.Equal(t, beforeTurn, treeOn(t, after.Root("/w")), what)
		}
		if !cut {
			return
		}
	}
}

// requireNothingLost checks the disk right after a power cut: no file has
// bytes that it never had.
func requireNothingLost(t testing.TB, got tree, what string) {
	t.Helper()
	for name, is := range got {
		if strings.HasPrefix(is, "file") && !strings.Contains(name, ".oino-") && is != beforeTurn[name] && is != afterTurn[name] {
			t.Fatalf("%s: %s is %q", what, name, is)
		}
	}
	require.Equal(t, file("stays"), got["stays"], what)
}

// Between the crash and the recovery the user goes on working. What he did is
// kept and told; the rest is completed, and what was aside is not left behind.
func TestWhatTheUserDidAfterACrashIsKept(t *testing.T) {
	scene := newScene(t, beforeTurn, afterTurn)
	for k := 0; ; k++ {
		s := scene.again(t, afterTurn)
		w := openOn(t, s.fs, s.kept)
		for i := range s.touched {
			s.touched[i].Now = w.Look(s.touched[i].Path)
		}
		in, _, err := w.Prepare(t.Context(), NewPlan(s.touched, Keep, never))
		require.NoError(t, err)
		s.fs.CutAt(k)
		w.Act(t.Context(), in, false)
		cut := s.fs.Cut()
		for _, step := range in.Steps {
			name := strings.TrimPrefix(step.Path, "/w/")
			what := fmt.Sprintf("killed after write %d, then %s is the user's", k, name)
			after := s.fs.AfterPowerCut(disktest.Keep(1, 100))
			r := after.Root("/w")
			mine := tree{name: file("the user's own")}
			if info, err := r.Lstat(path.Dir(name)); err != nil || !info.IsDir() {
				continue
			}
			if info, err := r.Lstat(name); err == nil && info.IsDir() {
				mine = tree{name + "/mine": file("the user's own")}
			} else if err == nil {
				require.NoError(t, r.Remove(name))
			}
			mine.plantOn(t, r)
			w := openOn(t, after, s.kept)
			w.Act(t.Context(), in, true)
			got := treeOn(t, r)
			for name, is := range mine {
				require.Equal(t, is, got[name], what)
			}
			for name := range got {
				require.NotContains(t, name, ".oino-", what)
			}
		}
		if !cut {
			return
		}
	}
}

func TestNoFaultBreaksAWrite(t *testing.T) {
	for _, tr := range []tree{{"d/f": mfile(0o640, "old")}, {"other": file("x")}} {
		for n := 1; ; n++ {
			f := disktest.New()
			tr.plantOn(t, f.Root("/w"))
			w := openOn(t, f, newMemory())
			f.FailAt(n, syscall.ENOSPC)
			_, err := w.Write("/w/d/f", []byte("new"), w.TempName(), State{})
			fired := f.Fired()
			f.FailAt(0, nil)
			got := treeOn(t, f.Root("/w")).bare()
			if err == nil {
				require.Equal(t, "new", got["d/f"][len("file 0640 "):])
			} else {
				require.ErrorIs(t, err, syscall.ENOSPC)
				if !strings.Contains(err.Error(), "did not confirm") {
					require.Equal(t, tr, got, "operation %d: %v", n, err)
				}
			}
			for name := range got {
				require.NotContains(t, name, ".oino-")
			}
			if !fired {
				require.NoError(t, err)
				require.Equal(t, got, treeOn(t, f.AfterPowerCut(nil).Root("/w")).bare(), "and that is durable")
				break
			}
		}
	}
}

func TestNoFaultOfTheDiskIsTakenForAbsence(t *testing.T) {
	for n := 1; ; n++ {
		f := disktest.New()
		tree{"d/e/f": file("x"), "d/l": link("e")}.plantOn(t, f.Root("/w"))
		w := openOn(t, f, newMemory())
		f.FailAt(n, syscall.EIO)
		for _, p := range []string{"/w/d/e/f", "/w/d/l", "/w/d"} {
			s := w.Look(p)
			require.NotEqual(t, Absent, s.State.Kind)
			if s.State.Kind == Uncovered {
				require.Contains(t, s.Err, "input/output error")
			}
			if s.State.Kind == Dir {
				require.True(t, s.BelowMore || len(s.Below) == 3)
			}
			c, err := w.Capture(p)
			require.NoError(t, err)
			require.NotEqual(t, Absent, c.State.Kind)
		}
		if !f.Fired() {
			return
		}
	}
}
