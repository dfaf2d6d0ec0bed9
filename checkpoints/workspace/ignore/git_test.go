package ignore_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints/workspace/ignore"
)

// gitIn returns a function that runs git in dir, where nothing but the
// repository itself tells it what to do.
func gitIn(t *testing.T, dir string) func(stdin string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("git is missing, and only git can say whether we ignore what git ignores")
		}
		t.Skip("SKIPPED: git is missing, so nothing says whether we ignore what git ignores")
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			env = append(env, v)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	env = append(env, "GIT_CONFIG_GLOBAL="+empty, "GIT_CONFIG_SYSTEM="+empty, "GIT_CONFIG_NOSYSTEM=1",
		"HOME="+filepath.Dir(empty), "XDG_CONFIG_HOME="+filepath.Dir(empty), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	return func(stdin string, args ...string) string {
		t.Helper()
		c := exec.Command("git", args...)
		c.Dir, c.Env, c.Stdin = dir, env, strings.NewReader(stdin)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		err := c.Run()
		if e, ok := err.(*exec.ExitError); ok && args[0] == "check-ignore" && e.ExitCode() == 1 {
			err = nil // nothing is ignored
		}
		require.NoError(t, err, "git %v: %s", args, errs.String())
		return out.String()
	}
}

// universe is a directory's worth of names that lines may hit or miss: names
// with a slash at the end are directories.
var universe = []string{
	"a", "b", "ab", "aab", "abc", "foo", "foo.o", "foo.c", "bar.o", "x y", "x ", " x", "foobar", "Foo", "FOO.O",
	"!a", "#a", "[a]", "a]b", "a[b", "a-b", "-", "a*b", "a?b", `a\b`, `a\`, "*", "**", "é", "\xff", "a\xffb", "1", "a1", "z9Z", "_", "\x01", "\v", "\t",
	"d/", "d/a", "d/b", "d/foo.o", "d/ab", "d/d/", "d/d/a", "d/d/ab", "d/d/foo.o", "d/foo/", "d/foo/bar", "d/foo/bar.o",
	"e/", "e/a", "e/d/", "e/d/a", "e/d/d/", "e/d/d/d/", "e/d/d/d/a", "e/foo/", "e/foo/a", "e/foo/d/", "e/foo/d/b",
	"ee/", "ee/a", "ee/x/", "ee/x/y/", "ee/x/y/z", "xy/", "xy/b", "x/", "x/y/", "x/y/b", "x/b", "xx/", "xx/y/", "xx/y/b",
}

var fragments = []string{
	"a", "b", "d", "e", "foo", "bar", "x", "y", "ab", ".o", ".c", "A", " ", "1", "-", "_", "é", "\xff", "\t",
	"/", "/", "/", "*", "*", "**", "**", "**/", "/**", "/**/", "?", "***", `\`, `\*`, `\?`, `\[`, `\ `, `\!`, `\#`, `\/`, `\a`, `\\`,
	"[ab]", "[!a]", "[^a]", "[a-c]", "[c-a]", "[]]", "[!]]", "[]-]", "[a-]", "[-a]", "[--a]", `[\a]`, `[\]]`, `[a\-c]`, `[\a-c]`, "[", "]", "[a", "[!", "[[:alpha:]]", "[[:digit:]a]",
	"[[:upper:][:digit:]]", "[[:foo:]]", "[[:]", "[[::]]", "[[:alpha:]", "[[:space:]]", "[[:punct:]]", "[[:print:]]", "[[:cntrl:]]", "[^[:alnum:]]", "[[:graph:]]", "[[:xdigit:]]",
	"[[:blank:]]", "[[:lower:]-z]", "[a-[:digit:]]", "[[a]", "[/]", "[a/b]", "[!/]", "!", "#", "\r", "\x00",
}

func lines() *rapid.Generator[string] {
	line := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		if rapid.IntRange(0, 5).Draw(t, "negated") == 0 {
			b.WriteString("!")
		}
		if rapid.IntRange(0, 5).Draw(t, "anchored") == 0 {
			b.WriteString("/")
		}
		for range rapid.IntRange(1, 6).Draw(t, "fragments") {
			b.WriteString(rapid.SampledFrom(fragments).Draw(t, "fragment"))
		}
		b.WriteString(rapid.SampledFrom([]string{"", "", "", "", "/", " ", "  ", `\ `, "\r", "/ "}).Draw(t, "end"))
		return b.String()
	})
	return rapid.Custom(func(t *rapid.T) string {
		all := strings.Join(rapid.SliceOfN(line, 1, 5).Draw(t, "lines"), rapid.SampledFrom([]string{"\n", "\n", "\r\n", "\n\n"}).Draw(t, "newline"))
		return rapid.SampledFrom([]string{"", "", "", "\ufeff"}).Draw(t, "mark") + all + rapid.SampledFrom([]string{"\n", "", "\r\n"}).Draw(t, "last")
	})
}

// excluded asks lines about a path of the universe as a walk would: what lies
// below an excluded directory is excluded.
func excluded(l *ignore.Lines, path string) bool {
	isDir := strings.HasSuffix(path, "/")
	path = strings.TrimSuffix(path, "/")
	for i := range path {
		if path[i] == '/' && l.Match(path[:i], true) == ignore.Exclude {
			return true
		}
	}
	return l.Match(path, isDir) == ignore.Exclude
}

// Each round asks git once about many directories, each with lines of its own
// and the whole universe in it.
func TestLinesMeanWhatTheyMeanToGit(t *testing.T) {
	const dirs = 24
	top := t.TempDir()
	git := gitIn(t, top)
	git("", "init", "-q", ".")
	var paths []string
	for n := range dirs {
		require.NoError(t, os.Mkdir(filepath.Join(top, fmt.Sprint(n)), 0o700))
		for _, name := range universe {
			path := filepath.Join(top, fmt.Sprint(n), filepath.FromSlash(name))
			if strings.HasSuffix(name, "/") {
				require.NoError(t, os.MkdirAll(path, 0o700))
			} else {
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			paths = append(paths, fmt.Sprintf("%d/%s", n, strings.TrimSuffix(name, "/")))
		}
	}
	stdin := strings.Join(paths, "\x00")
	rapid.Check(t, func(rt *rapid.T) {
		files := rapid.SliceOfN(lines(), dirs, dirs).Draw(rt, "files")
		for n, f := range files {
			require.NoError(rt, os.WriteFile(filepath.Join(top, fmt.Sprint(n), ".gitignore"), []byte(f), 0o600))
		}
		ignored := map[string]bool{}
		for p := range strings.SplitSeq(git(stdin, "check-ignore", "--no-index", "-z", "--stdin"), "\x00") {
			ignored[p] = true
		}
		for n, f := range files {
			l := ignore.Parse([]byte(f))
			for _, name := range universe {
				path := fmt.Sprintf("%d/%s", n, strings.TrimSuffix(name, "/"))
				if got := excluded(l, name); got != ignored[path] {
					rt.Fatalf("lines %q\npath %q\nwe exclude it: %v, git does: %v", f, name, got, ignored[path])
				}
			}
		}
	})
}
