package checkpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// Any turn, a rewind of it, and a power cut at any moment that keeps any share of
// what was not synced; perhaps another in the middle of the recovery. In the end
// the rewind is complete, and nothing of it is left over.
func TestAnyRewindSurvivesAnyPowerCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := someTree().Draw(rt, "a").whole(), someTree().Draw(rt, "b").whole()
		s := newScene(t, a, b)
		w := openOn(t, s.fs, s.kept)
		for i := range s.touched {
			s.touched[i].Now = w.Look(s.touched[i].Path)
		}
		p := NewPlan(s.touched, Keep, never)
		in, _, err := w.Prepare(context.Background(), p)
		require.NoError(t, err)
		logged, err := json.Marshal(in)
		require.NoError(t, err)
		disk := s.fs
		recovering := false
		for range rapid.IntRange(1, 3).Draw(rt, "cuts") {
			disk.CutAt(rapid.IntRange(0, 80).Draw(rt, "cut"))
			openOn(t, disk, s.kept).Act(context.Background(), decoded(t, logged), recovering)
			disk = disk.AfterPowerCut(disktest.Keep(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(0, 100).Draw(rt, "kept")))
			recovering = true
		}
		user := ""
		if rapid.Bool().Draw(rt, "user") {
			user = rapid.SampledFrom([]string{"a", "b", "a/a", "c/a", "c/a/b", "a/mine", "c/mine"}).Draw(rt, "where")
			r := disk.Root("/w")
			there := treeOn(t, r)
			if dir := path.Dir(user); strings.HasPrefix(there[user], "dir") || dir != "." && !strings.HasPrefix(there[dir], "dir") {
				user = ""
			} else {
				r.Remove(user)
				tree{user: file("mine")}.plantOn(t, r)
			}
		}
		before := treeOn(t, disk.Root("/w"))
		o := openOn(t, disk, s.kept).Act(context.Background(), decoded(t, logged), true)
		got := treeOn(t, disk.Root("/w"))
		for name := range got {
			if strings.Contains(name, ".oino-") {
				rt.Fatalf("%s is left: %v", name, o.Failed)
			}
		}
		if user != "" {
			if got[user] != file("mine") {
				rt.Fatalf("%s was the user's and is %q (%v): %v", user, got[user], before, o)
			}
			return
		}
		if len(o.Failed) > 0 || len(o.Done) != len(in.Steps) {
			rt.Fatalf("not complete: %+v", o)
		}
		if fmt.Sprint(got) != fmt.Sprint(a) {
			rt.Fatalf("%v, should be %v", got, a)
		}
		if again := treeOn(t, disk.AfterPowerCut(nil).Root("/w")); fmt.Sprint(again) != fmt.Sprint(a) {
			rt.Fatalf("not durable: %v", again)
		}
	})
}

func decoded(t testing.TB, logged []byte) Intent {
	var in Intent
	require.NoError(t, json.Unmarshal(logged, &in))
	return in
}
