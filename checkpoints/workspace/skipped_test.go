package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// What takes the place of a name that the rules have skipped was not absent
// before; what a skipped thing takes the place of is seen to go.
func TestWhatTakesASkippedNamesPlace(t *testing.T) {
	const (
		absent  = checkpoints.Absent
		file    = checkpoints.File
		symlink = checkpoints.Symlink
		folder  = checkpoints.Dir
		unknown = checkpoints.Uncovered
	)
	for name, c := range map[string]struct {
		lines         string
		before, after map[string]string // a name with "->" in it is a link
		want          []told
	}{
		"a directory's, a file":              {"/n/\n", map[string]string{"n/x": ""}, map[string]string{"n": "1"}, []told{{"n", unknown, file}}},
		"a directory's, a link":              {"n/\n", map[string]string{"d/n/x": ""}, map[string]string{"d/n->": "x"}, []told{{"d/n", unknown, symlink}}},
		"a link's, a directory":              {"n\n!n/\n", map[string]string{"n->": "x"}, map[string]string{"n/x": "1"}, []told{{"n", unknown, folder}, {"n/x", absent, file}}},
		"a file's, a directory":              {"*\n!*/\n!*.go\n", map[string]string{"n": ""}, map[string]string{"n/x.go": "1", "n/x": "1"}, []told{{"n", unknown, folder}, {"n/x.go", absent, file}}},
		"a directory's, a .env":              {".env*\n", map[string]string{".env.d/x": ""}, map[string]string{".env.d": "1"}, []told{{".env.d", unknown, file}}},
		"nobody's, a file":                   {"n/\n", nil, map[string]string{"n": "1"}, []told{{"n", absent, file}}},
		"nobody's, a directory":              {"n/\n", nil, map[string]string{"n/x": "1"}, nil},
		"a directory's, nobody":              {"n/\n", map[string]string{"n/x": "1"}, nil, nil},
		"a file's, a skipped directory":      {"n/\n", map[string]string{"n": "1"}, map[string]string{"n/x": "1"}, []told{{"n", file, folder}}},
		"a link's, a skipped directory":      {"n/\n", map[string]string{"n->": "1"}, map[string]string{"n/x": "1"}, []told{{"n", symlink, folder}}},
		"a directory's, a skipped file":      {"n\n!n/\n", map[string]string{"n/x/y": "1"}, map[string]string{"n": "1"}, []told{{"n", folder, file}, {"n/x", folder, absent}, {"n/x/y", file, absent}}},
		"a directory's, skipped as any kind": {"n\n", map[string]string{"n/x": "1"}, map[string]string{"n": "1"}, nil},
	} {
		for _, how := range []string{"", "seen by another in between", "in another process", "in a shorter journal", "once more"} {
			t.Run(name+" "+how, func(t *testing.T) {
				dir := t.TempDir()
				make := func(files map[string]string) {
					for name, content := range files {
						if link, ok := strings.CutSuffix(name, "->"); ok {
							require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755))
							require.NoError(t, os.Symlink(content, filepath.Join(dir, link)))
							continue
						}
						put(t, dir, map[string]string{name: content})
					}
				}
				clean := func() {
					for _, name := range []string{"n", "d/n", ".env.d"} {
						require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
					}
				}
				put(t, dir, map[string]string{".gitignore": c.lines, "d/.gitignore": "!.gitignore\n"})
				f := disktest.New()
				a := onDisk(f, nil)
				w := a.open(t, "s", dir)
				make(c.before)
				if how == "once more" { // the same things made anew change nothing
					captured(t, w, CaptureOptions{})
					clean()
					make(c.before)
				}
				start := captured(t, w, CaptureOptions{Begin: true})
				switch how {
				case "seen by another in between":
					captured(t, a.open(t, "s2", dir), CaptureOptions{})
				case "in another process":
					w = onDisk(f, nil).open(t, "s", dir)
				case "in a shorter journal":
					a.store.compact = -1 << 40
					captured(t, w, CaptureOptions{})
				}
				clean()
				make(c.after)
				end := captured(t, w, CaptureOptions{End: true})
				require.Equal(t, c.want, changes(t, w, start.Mark, end.Mark))
				for _, told := range c.want {
					require.Equal(t, told.before, statesOf(t, w, start.Mark, told.path)[0].Kind)
				}
			})
		}
	}
}

// Where rules are about directories or about what is none, what was there is
// never taken for absent, and what was covered is always known.
func TestWhatRulesSkipIsNeverAbsent(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the edits are those of a unix shell")
	}
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp("", "skipped")
		require.NoError(rt, err)
		defer os.RemoveAll(base)
		dir := filepath.Join(base, "w")
		lines := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a/", "b", "!b/", "d/e/", "/d/a/", "c/", "*", "!*/", "!a", "[ab]/", "d"}), 1, 4).Draw(rt, "lines"), "\n")
		require.NoError(rt, os.Mkdir(dir, 0o755))
		require.NoError(rt, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(lines), 0o644))
		rules := newRules("", nil, nil, []source{{lines: []byte(lines)}}).lookup()
		covers := func(tree map[string]checkpoints.State, rel string) bool {
			return rules.covers(rel, tree[rel].Kind == checkpoints.Dir)
		}
		agent := disktest.New()
		var spaces []*Workspace
		for i := range 2 {
			a := onDisk(agent, nil)
			a.store.compact = 2000
			defer a.close()
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
		for range rapid.IntRange(2, 8).Draw(rt, "captures") {
			for range rapid.IntRange(0, 6).Draw(rt, "edits") {
				edit(rt, dir)
			}
			who := rapid.IntRange(0, 1).Draw(rt, "who")
			c, err := spaces[who].Capture(context.Background(), CaptureOptions{})
			require.NoError(rt, err)
			moments[who] = append(moments[who], moment{c.Mark, scan(rt, dir, nil)})
			if ms := moments[who]; len(ms) > 1 && rapid.IntRange(0, 3).Draw(rt, "release") == 0 {
				require.NoError(rt, spaces[who].Release(context.Background(), ms[len(ms)-1].mark))
				moments[who] = ms[len(ms)-1:]
			}
		}
		for who, ms := range moments {
			for i, m := range ms {
				states, err := spaces[who].States(context.Background(), m.mark, paths(dir, editNames))
				require.NoError(rt, err)
				at := map[string]checkpoints.State{}
				for n, name := range editNames {
					at[name] = states[n]
					was, there := m.tree[name]
					switch {
					case there && covers(m.tree, name):
						require.Equal(rt, was, states[n], name)
					case there:
						require.Equal(rt, uncovered(checkpoints.Excluded), states[n], name)
					default:
						require.Contains(rt, []checkpoints.State{{Kind: checkpoints.Absent}, uncovered(checkpoints.Excluded)}, states[n], name)
					}
				}
				for _, later := range ms[i:] {
					all, err := spaces[who].Changes(context.Background(), m.mark, later.mark)
					require.NoError(rt, err)
					told := map[string]Changed{}
					for _, c := range all {
						rel := filepath.ToSlash(c.Path[len(dir)+1:])
						told[rel] = c
						if state, ok := at[rel]; ok {
							require.Equal(rt, state, c.Links[0].Before, rel)
						}
					}
					for _, name := range editNames {
						was, is := at[name], stateIn(later.tree, name)
						covered := is.Kind == checkpoints.Absent || covers(later.tree, name)
						switch {
						case was.Kind == checkpoints.Uncovered && !covered, was.Kind == checkpoints.Absent && !covered:
							require.NotContains(rt, told, name)
						case was.Kind == checkpoints.Uncovered, was == is:
						default:
							require.Contains(rt, told, name)
							if covered {
								require.Equal(rt, is, told[name].Links[len(told[name].Links)-1].After, name)
							}
						}
					}
				}
			}
		}
	})
}
