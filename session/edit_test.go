package session

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEditsMatchTheOriginalBytes(t *testing.T) {
	for _, c := range []struct {
		name  string
		old   string
		edits []Replacement
		want  string
		n     int
		kind  Kind
	}{
		{"one", "a b c", []Replacement{{"b", "X", false}}, "a X c", 1, ""},
		{"two, out of order", "a b c", []Replacement{{"c", "Z", false}, {"a", "Y", false}}, "Y b Z", 2, ""},
		{"an earlier edit's text is not matched", "a b", []Replacement{{"a", "b", false}, {"b", "c", false}}, "b c", 2, ""},
		{"all", "x y x", []Replacement{{"x", "", true}}, " y ", 2, ""},
		{"to the end", "a", []Replacement{{"a", "ab", false}}, "ab", 1, ""},
		{"bytes that are no text", "\x00\xffa", []Replacement{{"a", "b", false}}, "\x00\xffb", 1, ""},
		{"CRLF stays", "a\r\nb\r\n", []Replacement{{"b", "c", false}}, "a\r\nc\r\n", 1, ""},
		{"none", "a", nil, "a", 0, ""},
		{"no match", "a", []Replacement{{"z", "", false}}, "", 0, EditNoMatch},
		{"empty old text", "a", []Replacement{{"", "x", false}}, "", 0, EditNoMatch},
		{"twice", "a a", []Replacement{{"a", "b", false}}, "", 0, EditAmbiguous},
		{"overlapping itself", "aaa", []Replacement{{"aa", "b", false}}, "", 0, EditAmbiguous},
		{"all does not overlap itself", "aaa", []Replacement{{"aa", "b", true}}, "ba", 1, ""},
		{"edits overlap", "abc", []Replacement{{"ab", "x", false}, {"bc", "y", false}}, "", 0, EditAmbiguous},
		{"edits touch", "abc", []Replacement{{"ab", "x", false}, {"c", "y", false}}, "xy", 2, ""},
		{"same text twice asked", "ab", []Replacement{{"a", "x", false}, {"a", "y", false}}, "", 0, EditAmbiguous},
		{"one of two fails", "a b", []Replacement{{"a", "x", false}, {"z", "y", false}}, "", 0, EditNoMatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, n, err := replace("/f", []byte(c.old), c.edits)
			if c.kind != "" {
				e, ok := errors.AsType[*Error](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, c.kind, e.Kind)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			require.Equal(t, c.n, n)
		})
	}
}
