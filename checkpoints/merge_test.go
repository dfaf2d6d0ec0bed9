package checkpoints

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// someText draws a text of few different lines, so that equal ones abound.
func someText(name string) *rapid.Generator[string] {
	line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "d\r\n", "}\n"})
	return rapid.Custom(func(t *rapid.T) string {
		text := strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, name), "")
		if rapid.Bool().Draw(t, "unfinished") {
			text = strings.TrimSuffix(text, "\n")
		}
		return text
	})
}

func TestMergingWithAnUnchangedSideGivesTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, other := someText("base").Draw(t, "base"), someText("other").Draw(t, "other")
		for _, sides := range [][2]string{{base, other}, {other, base}, {other, other}} {
			merged, ok := mergeText([]byte(base), []byte(sides[0]), []byte(sides[1]))
			if !ok || string(merged) != other {
				t.Fatalf("merging %q and %q over %q: %q %v", sides[0], sides[1], base, merged, ok)
			}
		}
	})
}

func TestMergingIsTheSameFromBothSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, x, y := someText("base").Draw(t, "base"), someText("x").Draw(t, "x"), someText("y").Draw(t, "y")
		xy, ok := mergeText([]byte(base), []byte(x), []byte(y))
		yx, ok2 := mergeText([]byte(base), []byte(y), []byte(x))
		if ok != ok2 || !bytes.Equal(xy, yx) {
			t.Fatalf("%q %v, %q %v", xy, ok, yx, ok2)
		}
	})
}

// The hunks of a diff make the one text of the other, and between any two is
// a common line. They are as few lines as can be.
func TestADiffIsRightAndShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := someText("x").Draw(t, "x"), someText("y").Draw(t, "y")
		a, b := splitLines([]byte(x)), splitLines([]byte(y))
		var out []byte
		at, same := 0, 0
		for i, h := range diffLines(a, b) {
			if i > 0 && h.aFrom <= at {
				t.Fatalf("two hunks touch: %v", diffLines(a, b))
			}
			same += h.aFrom - at
			for ; at < h.aFrom; at++ {
				out = append(out, a[at]...)
			}
			out = append(out, bytes.Join(b[h.bFrom:h.bTo], nil)...)
			at = h.aTo
		}
		same += len(a) - at
		out = append(out, bytes.Join(a[at:], nil)...)
		if string(out) != y {
			t.Fatalf("%q, want %q", out, y)
		}
		if want := commonLines(a, b); same != want {
			t.Fatalf("%d lines kept of %q and %q, want %d", same, x, y, want)
		}
	})
}

// commonLines is the length of a longest common subsequence, the plain way.
func commonLines(a, b [][]byte) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diag := 0
		for j, y := range b {
			up := row[j+1]
			if bytes.Equal(x, y) {
				row[j+1] = diag + 1
			} else {
				row[j+1] = max(up, row[j])
			}
			diag = up
		}
	}
	return row[len(b)]
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("git is missing, and this test compares with it")
		}
		t.Skip("git is missing")
	}
}

// gitMerge is what git merge-file makes of the three.
func gitMerge(t *testing.T, dir string, base, theirs, ours string) (merged string, clean bool) {
	t.Helper()
	for name, text := range map[string]string{"base": base, "theirs": theirs, "ours": ours} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.Command("git", "merge-file", "-p", "-q", "ours", "base", "theirs")
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		require.Less(t, exit.ExitCode(), 128, "%s", exit.Stderr)
	} else {
		require.NoError(t, err)
	}
	return string(out), err == nil
}

// edited changes some lines of a text whose lines all differ.
func edited(r *rand.Rand, lines []string, mark string) []string {
	var out []string
	for i := 0; i < len(lines); i++ {
		switch n := r.IntN(12); {
		case n == 0: // gone
		case n == 1:
			out = append(out, fmt.Sprintf("%s new %d\n", mark, i), lines[i])
		case n == 2:
			out = append(out, fmt.Sprintf("%s changed %d\n", mark, i))
		case n == 3: // the same by chance
			out = append(out, fmt.Sprintf("both %d\n", i))
		default:
			out = append(out, lines[i])
		}
	}
	return out
}

func TestMergeSaysWhatGitMergeFileSays(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	clean := 0
	for range 250 {
		var base []string
		for i := range 1 + r.IntN(14) {
			base = append(base, fmt.Sprintf("line %d\n", i))
		}
		ends := func(lines []string) string {
			text := strings.Join(lines, "")
			switch r.IntN(6) {
			case 0:
				text = strings.TrimSuffix(text, "\n")
			case 1:
				text += "tail\n"
			}
			return text
		}
		b, x, y := strings.Join(base, ""), ends(edited(r, base, "x")), ends(edited(r, base, "y"))
		if r.IntN(4) == 0 {
			b, x, y = strings.ReplaceAll(b, "\n", "\r\n"), strings.ReplaceAll(x, "\n", "\r\n"), strings.ReplaceAll(y, "\n", "\r\n")
		}
		want, wantClean := gitMerge(t, dir, b, x, y)
		got, ok := mergeText([]byte(b), []byte(x), []byte(y))
		require.Equal(t, wantClean, ok, "base %q\ntheirs %q\nours %q\ngit: %q\nours: %q", b, x, y, want, got)
		if ok {
			clean++
			require.Equal(t, want, string(got), "base %q\ntheirs %q\nours %q", b, x, y)
		}
	}
	require.Greater(t, clean, 25, "the inputs are to be of both sorts")
	require.Less(t, clean, 225)
}

// Where lines repeat there is more than one shortest diff, and git may choose
// another. Then the two may differ, but rarely.
func TestMergeMostlySaysWhatGitSaysOfRepeatingLines(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	text := func(n int) string {
		var s strings.Builder
		for range n {
			s.WriteString([]string{"{\n", "}\n", "\n", "x\n", "y\n", "return\n"}[r.IntN(6)])
		}
		return s.String()
	}
	tweak := func(s string) string {
		lines := strings.SplitAfter(s, "\n")
		for range 1 + r.IntN(2) {
			i := r.IntN(len(lines))
			switch r.IntN(3) {
			case 0:
				lines = append(lines[:i:i], lines[min(i+1, len(lines)):]...)
			case 1:
				lines = append(lines[:i:i], append([]string{text(1)}, lines[i:]...)...)
			case 2:
				lines = append(lines[:i:i], append([]string{text(1)}, lines[min(i+1, len(lines)):]...)...)
			}
			if len(lines) == 0 {
				return ""
			}
		}
		return strings.Join(lines, "")
	}
	same, n := 0, 150
	for range n {
		b := text(8 + r.IntN(12))
		x, y := tweak(b), tweak(b)
		want, wantClean := gitMerge(t, dir, b, x, y)
		got, ok := mergeText([]byte(b), []byte(x), []byte(y))
		if ok == wantClean && (!ok || want == string(got)) {
			same++
		} else if testing.Verbose() {
			t.Logf("base %q\ntheirs %q\nours %q\ngit %v: %q\nwe %v: %q", b, x, y, wantClean, want, ok, got)
		}
	}
	require.GreaterOrEqual(t, same, n*98/100, "%d of %d as git says", same, n)
}
