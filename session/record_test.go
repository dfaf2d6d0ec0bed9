package session

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Version numbers and record types are for ever. A change here means a
// migration, a new frozen store in testdata, and a line in docs/sessions.md.
func TestTheFormatIsPinned(t *testing.T) {
	require.Equal(t, 1, formatVersion)
	for _, r := range []string{"session", "entry", "before", "after", "end", "reopen", "rewind", "rewound", "evict", "forked", "label", "title", "dirs", "state", "seen", "outside", "agent", "message"} {
		_, err := decodeRecord([]byte(`{"type":"` + r + `"}`))
		require.NoError(t, err, r)
	}
	_, err := decodeRecord([]byte(`{"type":"unheard-of"}`))
	require.ErrorContains(t, err, "unheard-of")
	h, err := encodeRecord(&headerRecord{Type: "session", Version: formatVersion, ID: "i", Cwd: "/w", CreatedAt: 5, App: "a", Tracking: Files})
	require.NoError(t, err)
	line, err := journal.Encode(nil, h)
	require.NoError(t, err)
	require.Equal(t, `{"type":"session","version":1,"id":"i","cwd":"/w","createdAt":5,"app":"a","tracking":"files","crc":"fe642eee"}`+"\n", string(line))
}

// What is spliced into a record is written as encoding/json writes it.
func TestRecordsAreEncodedAsAnyJSON(t *testing.T) {
	odd := []string{"/w/z", "/w/a", `/w/"q",\"done\":null`, "/w/<&>", "/w/\u2028", "/w/\n", "/w/\xff", "/w/é", ""}
	steps := []checkpoints.Step{{Path: "/w/a", From: checkpoints.State{Kind: checkpoints.Absent}}}
	undo := map[string][]int{}
	for i, path := range odd {
		undo[path] = make([]int, i)
		for j := range undo[path] {
			undo[path][j] = i * 1000 * j
		}
	}
	for _, r := range []any{
		&rewindRecord{Type: "rewind", ID: `,"undo":null`, Target: `,"undo":null`, Undo: undo, Intent: checkpoints.Intent{Steps: steps, MakeDirs: odd}},
		&rewindRecord{Type: "rewind", Undo: map[string][]int{}, Intent: checkpoints.Intent{Steps: steps}},
		&rewindRecord{Type: "rewind", Undo: undo},
		&rewoundRecord{Type: "rewound", ID: `,"done":null`, Done: odd, Kept: odd},
		&rewoundRecord{Type: "rewound", Done: []string{}},
	} {
		want, err := encodeJSON(r)
		require.NoError(t, err)
		got, err := encodeRecord(r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

// FuzzRecord feeds objects to the codec. What it takes it gives back the same,
// and the short way to read it sees what the long one sees.
func FuzzRecord(f *testing.F) {
	files, err := os.ReadDir("testdata/fuzz/FuzzRecord")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	f.Fuzz(func(t *testing.T, object []byte) {
		r, err := decodeRecord(object)
		if err != nil {
			return
		}
		again, err := encodeRecord(r)
		require.NoError(t, err)
		r2, err := decodeRecord(again)
		require.NoError(t, err)
		third, err := encodeRecord(r2)
		require.NoError(t, err)
		require.Equal(t, string(again), string(third))

		short, err := skim(bytes.Clone(again))
		require.NoError(t, err)
		long := r2
		if e, ok := long.(*entryRecord); ok && e.Role != User {
			c := *e
			c.Content, c.Display, c.Tool, c.Summary, c.TokensBefore, c.TokensAfter, c.MessageID = nil, nil, nil, "", 0, 0, ""
			long = &c
			if s, ok := short.(*entryRecord); ok && s.Content != nil { // it was not sure, and decoded it whole
				long = e
			}
		}
		require.Equal(t, long, short)

		// Whatever it says, a fold of it does not panic.
		st := newState()
		_ = st.apply(&entryRecord{Type: "entry", ID: "u", Role: User, Content: json.RawMessage("[]")}, journal.Pos{})
		_ = st.apply(r, journal.Pos{})
		st.roots(func(blobs.Digest, bool) {})
		st.info()
	})
}
