package checkpoints

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Steps are written as encoding/json writes them, whatever they hold.
func TestStepsAreEncodedAsAnyJSON(t *testing.T) {
	states := []State{
		{}, {Kind: Absent}, {Kind: Absent, Mode: 5}, fileState(0o644, "a"), fileState(0, ""), {Kind: File, Size: 3}, {Kind: Dir, Mode: 0o755},
		{Kind: Symlink, Target: "a\xffb"}, {Kind: Symlink, Target: "<a>"}, {Kind: Uncovered, Reason: TooLarge, Size: 1 << 40, Digest: digestOf(nil)},
	}
	names := []string{"/w/a", "", `/w/"q"`, `/w/b\c`, "/w/<&>", "/w/\u2028", "/w/\x7f\n", "/w/\xff", "/w/é"}
	var steps []Step
	for i, from := range states {
		for j, to := range states {
			s := Step{Path: names[(i+j)%len(names)], From: from, To: to, Saved: from, Merged: i == 3 && j > 6}
			s.Temp, s.Aside = names[i%len(names)], names[j%len(names)]
			if j == 4 {
				s.Parents = []Parent{{Path: "/w", Mode: 0o700}}
			}
			steps = append(steps, s, Step{Path: s.Path, From: from, To: to, Saved: to})
		}
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(steps))
	got, err := AppendSteps(nil, steps)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got)+"\n")
}
