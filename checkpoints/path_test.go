package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A path has one name, however it is spelled; what leads out has none.
func TestResolveGivesEveryAliasOneName(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tree{
		"private/w/a":           file("a"),
		"private/w/d/e/f":       file("f"),
		"private/w/toA":         link("a"),
		"private/w/toToA":       link("toA"),
		"private/w/toD":         link("d"),
		"private/w/deep/up":     link("../d/e"),
		"private/w/abs":         link(top + "/tmp/w/a"), // over the spelled root
		"private/w/real":        link(top + "/private/w/a"),
		"private/w/out":         link("../../elsewhere/x"),
		"private/w/outDir":      link("../../elsewhere"),
		"private/w/outAndBack":  link("../../elsewhere/back"),
		"private/w/dangling":    link("not/there"),
		"private/w/danglingOut": link("../../elsewhere/nothing"),
		"private/w/circle":      link("circle"),
		"private/w/round":       link("about"),
		"private/w/about":       link("round"),
		"private/w/self":        link("."),
		"private/w/toGit":       link(".git/config"),
		"private/w/.git/config": file("c"),
		"private/w/toAgent":     link("agent/sessions"),
		"private/w/.gitignore":  file("i"),
		"private/w/sub/.git":    file("gitdir: ../x"),
		"private/w/sub/s":       file("s"),
		"elsewhere/x":           file("secret"),
		"elsewhere/back":        link("../private/w/a"),
		"second/n":              file("n"),
		"tmp":                   link("private"),
	}.plant(t, top)
	w, err := OpenWorkspace(Config{
		Roots:    []string{top + "/tmp/w", top + "/private/w/d", top + "/second/"},
		AgentDir: top + "/private/w/agent",
	})
	require.NoError(t, err)
	defer w.Close()
	root := top + "/tmp/w"

	for _, c := range []struct {
		path string
		want string // names below the root, or the kind of the error
	}{
		{root + "/a", "a"},
		{root + "/./a", "a"},
		{root + "//a", "a"},
		{root + "/a/", "a"},
		{root + "/d/../a", "a"},
		{root + "/toD/../a", "a"},
		{root + "/nowhere/../a", "a"},
		{top + "/private/w/a", "a"},
		{top + "/elsewhere/../private/w/a", "a"},
		{top + "/elsewhere/back", "a"},
		{root + "/../w/a", "a"},
		{root + "/toA", "a toA"},
		{root + "/toA/", "a toA"},
		{root + "/toToA", "a toToA toA"},
		{root + "/abs", "a abs"},
		{root + "/real", "a real"},
		{root + "/outAndBack", "a outAndBack"},
		{root + "/toD/e/f", "d/e/f"},
		{root + "/deep/up/f", "d/e/f"},
		{root + "/deep/up", "d/e deep/up"},
		{root + "/toD/e/../../a", "a"},
		{root + "/dangling", "not/there dangling"},
		{root + "/new/x/y", "new/x/y"},
		{root + "/a/below/a/file", "a/below/a/file"},
		{root + "/.gitignore", ".gitignore"},
		{root + "/x.git/c", "x.git/c"},
		{root + "/agentless", "agentless"},
		{root + "/ spaced ", " spaced "},
		{root + "/[id].tsx", "[id].tsx"},
		{root + "/d/x", "d/x"}, // the root inside the root is the outer one's
		{root + "/" + strings.Repeat("n", 255), strings.Repeat("n", 255)},

		{"", badPath},
		{"a", badPath},
		{"./a", badPath},
		{root + "/a\x00b", badPath},
		{root, badPath},
		{root + "/", badPath},
		{root + "/d/..", badPath},
		{top + "/private/w", badPath},
		{root + "/self", badPath},
		{root + "/circle", badPath},
		{root + "/round", badPath},
		{root + "/round/x", badPath},
		{root + "/" + strings.Repeat("n", 256), badPath},

		{"/", outsideRoots},
		{top, outsideRoots},
		{root + "x", outsideRoots},
		{root + "/..", outsideRoots},
		{root + "/../other", outsideRoots},
		{root + "/a/../../../etc/passwd", outsideRoots},
		{"/etc/passwd", outsideRoots},
		{top + "/elsewhere/x", outsideRoots},
		{root + "/out", outsideRoots},
		{root + "/outDir/x", outsideRoots},
		{root + "/outDir/new", outsideRoots},
		{root + "/danglingOut", outsideRoots},
		{root + "/.git", outsideRoots},
		{root + "/.git/config", outsideRoots},
		{root + "/.GIT/config", outsideRoots},
		{root + "/toGit", outsideRoots},
		{root + "/new/.git/x", outsideRoots},
		{root + "/sub/.git", outsideRoots},
		{root + "/agent", outsideRoots},
		{root + "/agent/sessions/x", outsideRoots},
		{root + "/toAgent", outsideRoots},
	} {
		names, err := w.Resolve(c.path)
		if c.want == badPath || c.want == outsideRoots {
			var e *PathError
			require.True(t, errors.As(err, &e), "%s: %v %v", c.path, names, err)
			require.Equal(t, c.want, e.Kind, "%s: %s", c.path, e.Msg)
			require.Equal(t, c.path, e.Path)
			continue
		}
		require.NoError(t, err, c.path)
		var want []string
		if strings.HasPrefix(c.want, " ") {
			want = []string{root + "/" + c.want}
		} else {
			for _, name := range strings.Fields(c.want) {
				want = append(want, root+"/"+name)
			}
		}
		require.Equal(t, want, names, c.path)
		// A name leads to itself.
		again, err := w.Resolve(names[0])
		require.NoError(t, err)
		require.Equal(t, names[:1], again)
	}
	names, err := w.Resolve(top + "/second/n")
	require.NoError(t, err)
	require.Equal(t, []string{top + "/second/n"}, names)
}

func TestNothingOfARootBelowGitHasAName(t *testing.T) {
	top := t.TempDir()
	tree{"p/.git/wt/a": file("a")}.plant(t, top)
	w := open(t, top+"/p/.git/wt")
	_, err := w.Resolve(top + "/p/.git/wt/a")
	require.ErrorContains(t, err, "git")
}

func TestARootMustBeADirectory(t *testing.T) {
	top := t.TempDir()
	tree{"f": file("x"), "d": dir(), "toD": link("d")}.plant(t, top)
	for _, bad := range []string{"relative", top + "/f", top + "/missing", top + "/f/x", "/a\x00b"} {
		_, err := OpenWorkspace(Config{Roots: []string{bad}})
		var e *PathError
		require.ErrorAs(t, err, &e, bad)
		require.Equal(t, badPath, e.Kind)
	}
	w := open(t, top+"/toD", top+"/d") // one directory under two names: the first counts
	names, err := w.Resolve(top + "/d/x")
	require.NoError(t, err)
	require.Equal(t, []string{top + "/toD/x"}, names)
}

// A root that was removed and made anew is seen through its name, not through
// the directory that was opened: there everything would be absent for ever.
func TestARootMadeAnewIsTheRoot(t *testing.T) {
	top := t.TempDir()
	tree{"w/a": file("old")}.plant(t, top)
	w := open(t, top+"/w")
	require.Equal(t, File, w.Look(top+"/w/a").State.Kind)

	require.NoError(t, os.RemoveAll(top+"/w"))
	s := w.Look(top + "/w/a")
	require.Equal(t, Uncovered, s.State.Kind, "not absent: the root itself is gone")
	require.Contains(t, s.Err, "root")

	tree{"w/a": file("new!")}.plant(t, top)
	require.Equal(t, int64(4), w.Look(top+"/w/a").State.Size)
	_, err := w.Write(top+"/w/b", []byte("b"), w.TempName(), State{})
	require.NoError(t, err)
	require.Equal(t, tree{"a": file("new!"), "b": file("b")}, treeOf(t, top+"/w"))
}
