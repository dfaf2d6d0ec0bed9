package workspace

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// needGit fails in CI, and skips elsewhere, where there is no git to ask.
func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("git is missing, and only git can say whether we ignore what git ignores")
	}
	t.Skip("SKIPPED: git is missing, so nothing says whether we ignore what git ignores")
}

// runGit runs git in dir; "nothing is ignored" is no failure.
func runGit(t require.TestingT, empty, dir, stdin string, args ...string) string {
	c := exec.Command("git", args...)
	c.Dir, c.Env, c.Stdin = dir, gitEnv(empty), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if e, ok := err.(*exec.ExitError); ok && args[0] == "check-ignore" && e.ExitCode() == 1 {
		err = nil
	}
	require.NoError(t, err, "git %v: %s", args, errs.String())
	return out.String()
}

// makeRepository makes the least that git takes for a repository.
func makeRepository(t require.TestingT, dir, exclude string) {
	for _, d := range []string{"objects", "refs", "info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, ".git", d), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte(exclude), 0o644))
}

// gitSays are the paths below root that git, asked in the repository that each
// lies in, does not ignore, and that lie in no ignored directory.
func gitSays(t require.TestingT, empty, top, root string) map[string]bool {
	ask := map[string][]string{} // paths from top, by repository
	var all []string
	kinds := map[string]fs.FileMode{}
	require.NoError(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		if d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		repository := filepath.Dir(path)
		for {
			if _, err := os.Lstat(filepath.Join(repository, ".git")); err == nil {
				break
			}
			repository = filepath.Dir(repository)
		}
		rel, _ := filepath.Rel(top, path)
		ask[repository] = append(ask[repository], path)
		all = append(all, rel)
		kinds[rel] = d.Type()
		return nil
	}))
	ignored := map[string]bool{}
	for repository, paths := range ask {
		var in []string
		for _, p := range paths {
			rel, _ := filepath.Rel(repository, p)
			in = append(in, rel)
		}
		for p := range strings.SplitSeq(runGit(t, empty, repository, strings.Join(in, "\x00"), "check-ignore", "--no-index", "-z", "--stdin"), "\x00") {
			if p != "" {
				rel, _ := filepath.Rel(top, filepath.Join(repository, p))
				ignored[rel] = true
			}
		}
	}
	covered := map[string]bool{}
	for _, rel := range all { // each directory before what is in it
		dir := filepath.Dir(rel)
		in := dir == "." || covered[dir] && kinds[dir].IsDir()
		if in && (!ignored[rel] || strings.HasPrefix(filepath.Base(rel), ".env") && !kinds[rel].IsDir()) {
			covered[rel] = true
		}
	}
	below := map[string]bool{}
	for rel := range covered {
		if r, err := filepath.Rel(root, filepath.Join(top, rel)); err == nil && r != "." && !strings.HasPrefix(r, "..") {
			below[r] = true
		}
	}
	return below
}

var ruleNames = []string{"a", "b", "foo", "foo.o", ".env", ".env.local", "out", "x y"}

var ruleLines = []string{
	"a", "b/", "/a", "foo", "*.o", "!foo.o", "!a", "/foo/", "foo/*", "!foo/a", "**/b", "a/**", "a/*/b", "out", "/out/b", "!/out/b", "*", "!*/", "!b", ".env*", "[ab]",
	"foo/b", "!foo/", "/*/a", "# a", "out/", "*/b", "!out", "/b/foo", "x\\ y", "x y ", "!/a/b", "a/b", "**/foo/b", "a/**/b", "/**", "!.gitignore",
}

// known are all paths that a capture covers.
func known(t *tree) map[string]bool {
	all := map[string]bool{}
	for dir, f := range t.table.folders {
		for _, e := range f.entries {
			if !e.excluded() {
				all[join(dir, e.name)] = true
			}
		}
	}
	return all
}

func TestRulesAreThoseOfGit(t *testing.T) {
	needGit(t)
	empty := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		top, err := os.MkdirTemp("", "rules")
		require.NoError(rt, err)
		defer os.RemoveAll(top)
		top, err = filepath.EvalSymlinks(top)
		require.NoError(rt, err)
		lines := func(label string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(ruleLines), 0, 4).Draw(rt, label), "\n")
		}
		dirs := []string{"."}
		repositories := []string{}
		for i := 0; i < len(dirs) && len(dirs) < 14; i++ {
			dir := filepath.Join(top, dirs[i])
			if i > 0 && rapid.IntRange(0, 9).Draw(rt, "repository") == 0 {
				makeRepository(rt, dir, lines("exclude"))
				repositories = append(repositories, dirs[i])
			}
			if rapid.IntRange(0, 1).Draw(rt, "ignore") == 0 {
				require.NoError(rt, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(lines("lines")), 0o644))
			}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(ruleNames), 1, 6, rapid.ID).Draw(rt, "names") {
				switch path := filepath.Join(dir, name); rapid.IntRange(0, 5).Draw(rt, "kind") {
				case 0, 1, 2:
					require.NoError(rt, os.Mkdir(path, 0o755))
					dirs = append(dirs, filepath.Join(dirs[i], name))
				case 3:
					require.NoError(rt, os.Symlink("a", path))
				default:
					require.NoError(rt, os.WriteFile(path, nil, 0o644))
				}
			}
		}
		// Without a repository at the top, the rules begin at the root.
		inRepository := rapid.Bool().Draw(rt, "in a repository")
		if inRepository {
			makeRepository(rt, top, lines("exclude"))
		}
		root := top
		if inRepository {
			// The root lies anywhere in it; that it is ignored itself does not count.
			if dir := rapid.SampledFrom(dirs).Draw(rt, "root"); dir == "." || gitCovers(rt, empty, top, dir) {
				root = filepath.Join(top, dir)
			}
		}
		a := onDisk(disktest.New(), nil)
		w, err := a.store.Open("s", []string{root})
		require.NoError(rt, err)
		defer w.Close()
		_, err = w.Capture(t.Context(), CaptureOptions{})
		require.NoError(rt, err)
		if !inRepository {
			makeRepository(rt, top, "")
		}
		require.Equal(rt, gitSays(rt, empty, top, root), known(w.roots[0].tree), "root %s, repositories %v", root, repositories)
	})
}

func gitCovers(t require.TestingT, empty, top, dir string) bool {
	return gitSays(t, empty, top, top)[dir]
}

// The .git of a linked worktree or a submodule is a file, and info/exclude
// lies in the repository that it leads to.
func TestExcludeOfAWorktreeAndASubmodule(t *testing.T) {
	needGit(t)
	empty, top := t.TempDir(), t.TempDir()
	main := filepath.Join(top, "main")
	put(t, main, map[string]string{"a": ""})
	git := func(dir string, args ...string) { runGit(t, empty, dir, "", args...) }
	git(main, "init", "-q", ".")
	git(main, "add", "-A")
	git(main, "commit", "-qm", "a")
	git(main, "worktree", "add", "-q", filepath.Join(top, "linked"))
	put(t, main, map[string]string{".git/info/exclude": "hidden\n"})
	require.NoError(t, os.Mkdir(filepath.Join(main, ".git/modules"), 0o755))
	git(main, "init", "-q", "--separate-git-dir", filepath.Join(main, ".git/modules/sub"), "sub")
	put(t, main, map[string]string{".git/modules/sub/info/exclude": "other\n"})
	files := map[string]string{"hidden": "", "other": "", "seen": ""}
	for _, dir := range []string{"main", "linked", "main/sub"} {
		put(t, filepath.Join(top, dir), files)
	}
	a := onDisk(disktest.New(), nil)
	for dir, want := range map[string]map[string]bool{
		"main":     {"a": true, "other": true, "seen": true, "sub": true, "sub/hidden": true, "sub/seen": true},
		"linked":   {"a": true, "other": true, "seen": true},
		"main/sub": {"hidden": true, "seen": true},
	} {
		w := a.open(t, "s", filepath.Join(top, dir))
		captured(t, w, CaptureOptions{})
		require.Equal(t, want, known(w.roots[0].tree), dir)
	}
}

// What decides at a turn's end is what the lines said at its start.
func TestTheRulesOfATurnAreThoseOfItsStart(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{".gitignore": "out/\n*.tmp\n", "a": "1", "out/x": "1", "b.tmp": "1", "gen/y": "1"})
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "s", dir)
	start := captured(t, w, CaptureOptions{Begin: true})
	put(t, dir, map[string]string{".gitignore": "gen/\n", "out/x": "2", "out/n": "1", "b.tmp": "2", "gen/y": "2", "gen/n": "1", "c.tmp": "1"})
	end := captured(t, w, CaptureOptions{End: true})
	require.Equal(t, []told{
		{".gitignore", checkpoints.File, checkpoints.File}, {"gen/n", checkpoints.Absent, checkpoints.File}, {"gen/y", checkpoints.File, checkpoints.File},
	}, changes(t, w, start.Mark, end.Mark))
	require.Equal(t, []checkpoints.State{uncovered(checkpoints.Excluded), uncovered(checkpoints.Excluded)}, statesOf(t, w, start.Mark, "out/n", "b.tmp"))

	// From then on the new lines decide.
	require.NoError(t, w.Release(t.Context(), end.Mark))
	put(t, dir, map[string]string{"out/x": "3", "gen/y": "3"})
	next := captured(t, w, CaptureOptions{Begin: true})
	require.Equal(t, []told{{"out/x", checkpoints.File, checkpoints.File}}, changes(t, w, end.Mark, next.Mark))

	// A nested repository that a turn makes is no boundary before it ends.
	put(t, dir, map[string]string{"sub/.gitignore": "z\n", "sub/z": "1"})
	makeRepository(t, filepath.Join(dir, "sub"), "y\n")
	put(t, dir, map[string]string{"sub/y": "1"})
	after := captured(t, w, CaptureOptions{End: true})
	require.Equal(t, []told{
		{"sub", checkpoints.Absent, checkpoints.Dir}, {"sub/.gitignore", checkpoints.Absent, checkpoints.File},
		{"sub/y", checkpoints.Absent, checkpoints.File}, {"sub/z", checkpoints.Absent, checkpoints.File},
	}, changes(t, w, next.Mark, after.Mark))
}

func TestAPathThatATurnHasTouchedStaysCovered(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{".gitignore": "out/\n", "out/x": "1", "out/y": "1"})
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "s", dir)
	always := []string{filepath.Join(dir, "out/x"), filepath.Join(dir, "out/deep/new")}
	first := captured(t, w, CaptureOptions{Always: always})
	put(t, dir, map[string]string{"out/x": "2", "out/y": "2", "out/deep/new": "1"})
	second := captured(t, w, CaptureOptions{Always: always})
	require.Equal(t, []told{{"out/deep/new", checkpoints.Absent, checkpoints.File}, {"out/x", checkpoints.File, checkpoints.File}}, changes(t, w, first.Mark, second.Mark))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "out")))
	third := captured(t, w, CaptureOptions{Always: always})
	require.Equal(t, []told{{"out/deep/new", checkpoints.File, checkpoints.Absent}, {"out/x", checkpoints.File, checkpoints.Absent}}, changes(t, w, second.Mark, third.Mark))
}

func TestIncludeWinsAndExcludeExcludes(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		".gitignore": "vendor/\n*.log\n", "a": "", "secret": "", "keep.log": "", "no.log": "",
		"vendor/ours/x.log": "", "vendor/theirs/x": "", "vendor/list": "", "secrets/a": "", "secrets/.env": "", ".env": "",
	})
	a := onDisk(disktest.New(), func(c *Config) {
		c.Include = []string{"/vendor/ours/", "keep.log"}
		c.Exclude = []string{"secret", "secrets/", "/.env"}
	})
	w := a.open(t, "s", dir)
	first := captured(t, w, CaptureOptions{})
	require.Equal(t, map[string]bool{".gitignore": true, "a": true, "keep.log": true, "vendor/ours": true, "vendor/ours/x.log": true}, known(w.roots[0].tree))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "vendor")))
	second := captured(t, w, CaptureOptions{})
	require.Equal(t, []told{{"vendor/ours", checkpoints.Dir, checkpoints.Absent}, {"vendor/ours/x.log", checkpoints.File, checkpoints.Absent}}, changes(t, w, first.Mark, second.Mark))
}

// A project below a directory whose repository ignores everything, as people
// keep their home directories, is covered: somebody has chosen it as a root.
func TestARootThatIsIgnoredItselfIsOnItsOwn(t *testing.T) {
	home := t.TempDir()
	makeRepository(t, home, "")
	put(t, home, map[string]string{".gitignore": "*\n", "project/.gitignore": "x\n", "project/a": "", "project/x": "", "project/d/b": ""})
	w := onDisk(disktest.New(), nil).open(t, "s", filepath.Join(home, "project"))
	captured(t, w, CaptureOptions{})
	require.Equal(t, map[string]bool{".gitignore": true, "a": true, "d": true, "d/b": true}, known(w.roots[0].tree))
}

// What was covered once and never will be again is forgotten when the journal
// is made anew.
func TestWhatNobodyCoversIsForgotten(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"modules/a": "1", "modules/d/b": "1", "a": "1"})
	f := disktest.New()
	a := onDisk(f, nil)
	w := a.open(t, "s", dir)
	first := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{".gitignore": "modules\n"})
	second := captured(t, w, CaptureOptions{})
	a.store.compact = -1 << 40
	third := captured(t, w, CaptureOptions{})
	require.Contains(t, known(w.roots[0].tree), "modules/d/b", "the first mark is held, and what it covers")
	put(t, dir, map[string]string{"modules/d/b": "2"})
	fourth := captured(t, w, CaptureOptions{})
	require.Equal(t, []told{{".gitignore", checkpoints.Absent, checkpoints.File}, {"modules/d/b", checkpoints.File, checkpoints.File}}, changes(t, w, first.Mark, fourth.Mark))
	require.Empty(t, changes(t, w, second.Mark, third.Mark))
	require.NoError(t, w.Release(t.Context(), fourth.Mark))
	captured(t, w, CaptureOptions{}) // still under the rules of the marks held when it began
	captured(t, w, CaptureOptions{})
	want := map[string]bool{".gitignore": true, "a": true}
	require.Equal(t, want, known(w.roots[0].tree))
	v := onDisk(f, nil).open(t, "s", dir)
	captured(t, v, CaptureOptions{})
	require.Equal(t, want, known(v.roots[0].tree))
}
