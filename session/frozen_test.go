package session

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// An agent directory that the first oinod wrote must stay readable for ever:
// testdata/format1/agent holds a session with turns, states, a label, a title,
// rewinds and a redo, other directories and a compaction, and a fork of it
// that is compressed. Never change it; a new format gets a store of its own.
const (
	frozenID   = "01a22a65-4a48-74ed-a19b-782ab86f59b7"
	frozenFork = "01a22a65-4ae0-73ad-931b-ec0a40955a9f"
)

// frozen is a copy of the frozen store, and of its workspace as it was left.
// The workspace was another directory then: ours stands in its place.
func frozen(t *testing.T) *box {
	b := &box{t: t, agent: filepath.Join(t.TempDir(), "agent"), dir: t.TempDir()}
	require.NoError(t, os.CopyFS(b.agent, os.DirFS("testdata/format1/agent")))
	b.put("a", "a3\n")
	reg, err := OpenRegistry(Options{Dir: b.agent, Limits: DefaultLimits, OpenRoot: func(dir string) (disk.Root, error) {
		if filepath.Dir(dir) == "/srv" {
			dir = b.dir
		}
		return disk.Open(dir)
	}})
	require.NoError(t, err)
	t.Cleanup(func() { reg.Shutdown(t.Context()) })
	b.reg = reg
	return b
}

func TestAStoreOfFormat1IsRead(t *testing.T) {
	b := frozen(t)
	b.whole()
	infos, _, err := b.reg.List(t.Context(), ListParams{})
	require.NoError(t, err)
	require.Len(t, infos, 2)
	require.Equal(t, frozenFork, infos[0].SessionID)
	require.Equal(t, frozenID, infos[0].ParentSessionID)
	require.Equal(t, Info{
		SessionID: frozenID, Cwd: "/srv/project", AdditionalDirectories: []string{"/srv/other"}, Title: "A frozen session",
		CreatedAt: 1796007610952, UpdatedAt: 1796007611089, Entries: 6, Checkpoints: 2, Size: 7740,
		FirstUserMessage: "first: naïve ☃", LastUserMessage: "another second",
	}, infos[1])
	v := b.view(frozenID)
	require.Len(t, b.shows(v, false), 6)
	require.Len(t, b.shows(v, true), 7)
	require.Len(t, v.Checkpoints, 2)
	require.True(t, b.view(frozenFork).Packed)
	require.Zero(t, b.collect(CollectParams{}).Blobs)
	b.whole()
}

func TestASessionOfFormat1GoesOn(t *testing.T) {
	b := frozen(t)
	s := b.get(frozenID)
	var first, second string
	for _, e := range s.state.order {
		if e.role == User && first == "" {
			first = e.id
		} else if e.role == User && second == "" {
			second = e.id
		}
	}
	messages := b.messages(s)
	require.Equal(t, "user "+first+" first: naïve ☃", messages[0])
	require.Regexp(t, "^assistant .* Done.$", messages[1])
	state := struct {
		Log []string `json:"log"`
	}{}
	_, old, err := s.GetState(t.Context(), "")
	require.NoError(t, err)
	_, changed, err := s.GetState(t.Context(), second)
	require.NoError(t, err)
	require.NotEqual(t, old, changed)
	require.NoError(t, json.Unmarshal(changed, &state))
	require.Equal(t, "changed", state.Log[300])
	model, _ := b.context(s)
	require.Len(t, model, 2)

	r := b.rewind(s, RewindParams{EntryID: first})
	require.Equal(t, []string{"/srv/project/a"}, r.Restored)
	b.has("a", "a0\n")
	b.redo(s)
	b.has("a", "a3\n")

	fork := b.get(frozenFork)
	require.Equal(t, "in the fork", fork.state.leaf.lastMsg)
	_, forked, err := fork.GetState(t.Context(), "")
	require.NoError(t, err)
	require.True(t, bytes.Equal(old, forked))
	b.prompt(fork, "and on")
}
