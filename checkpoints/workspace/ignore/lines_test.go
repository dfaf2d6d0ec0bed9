package ignore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/workspace/ignore"
)

// What the differential test would only find where git is.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		lines, path string
		isDir       bool
		want        ignore.Verdict
	}{
		{"", "a", false, ignore.None},
		{"# a\n\n", "# a", false, ignore.None},
		{"a", "d/a", false, ignore.Exclude},
		{"/a", "d/a", false, ignore.None},
		{"d/a", "x/d/a", false, ignore.None},
		{"a/", "a", false, ignore.None},
		{"a/", "a", true, ignore.Exclude},
		{"*.o\n!x.o", "d/x.o", false, ignore.Include},
		{"a  ", "a", false, ignore.Exclude},
		{`a\ `, "a ", false, ignore.Exclude},
		{"a\r\n", "a", false, ignore.Exclude},
		{"\ufeffa", "a", false, ignore.Exclude},
		{"**/b", "b", false, ignore.Exclude},
		{"a/**/b", "a/b", false, ignore.Exclude},
		{"a/**", "a", true, ignore.None},
		{"a/**", "a/x/y", false, ignore.Exclude},
		{"A", "a", false, ignore.None},
		{"[[:digit:]]x", "1x", false, ignore.Exclude},
		{"[", "[", false, ignore.None},
	} {
		require.Equal(t, c.want, ignore.Parse([]byte(c.lines)).Match(c.path, c.isDir), "%q %q", c.lines, c.path)
	}
}

// No line makes a match take long, whatever a repository brings.
func TestNoLineTakesLong(t *testing.T) {
	l := ignore.Parse([]byte(strings.Repeat("*a", 200) + "b\n" + strings.Repeat("**/a/", 200) + "b\n"))
	require.Equal(t, ignore.None, l.Match(strings.Repeat("a/", 2000)+strings.Repeat("a", 5000), false))
}

func TestBelowIsWhatAPathsLineCouldMatch(t *testing.T) {
	l := ignore.Parse([]byte("/vendor/ours/\nlib/*/src\n**/deep\nname\n"))
	require.True(t, l.Below("vendor"))
	require.True(t, l.Below("anything"), "** is everywhere")
	l = ignore.Parse([]byte("/vendor/ours/\nlib/*/src\nname\n"))
	require.True(t, l.Below("vendor"))
	require.True(t, l.Below("vendor/ours"))
	require.False(t, l.Below("vendor/theirs"))
	require.True(t, l.Below("lib/x"))
	require.False(t, l.Below("other"))
}
