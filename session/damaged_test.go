package session

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// damage turns a bit of a kept content, as a failing disk does.
func (b *box) damage(content string) {
	b.t.Helper()
	segments, err := filepath.Glob(filepath.Join(b.agent, "blobs", "*.seg"))
	require.NoError(b.t, err)
	d := sha256.Sum256([]byte(content))
	done := false
	for _, path := range segments {
		all, err := os.ReadFile(path)
		require.NoError(b.t, err)
		// The digest is in the frame's head, which a sum of 4 bytes ends.
		if i := bytes.Index(all, d[:]); i >= 0 {
			all[i+len(d)+4] ^= 1
			require.NoError(b.t, os.WriteFile(path, all, 0o600))
			done = true
		}
	}
	require.True(b.t, done, "it is kept nowhere")
}

// A content that is found damaged while a rewind is under way fails its path
// and no other. The path's interval stays, so does the conversation, no fork is
// made, and nothing is announced where nothing was done. What was done is redone.
func TestADamagedContentFailsItsPathAlone(t *testing.T) {
	const others = 100
	for _, alone := range []bool{true, false} {
		for _, restarted := range []bool{true, false} { // if not, it is found only when it is staged
			for _, on := range []checkpoints.OnConflict{checkpoints.Keep, checkpoints.Merge, checkpoints.Overwrite, "fail"} {
				for _, conversation := range []Conversation{KeepConversation, RewindConversation} {
					t.Run(strings.Join([]string{strconv.FormatBool(alone), strconv.FormatBool(restarted), string(on), string(conversation)}, " "), func(t *testing.T) {
						b := newBox(t)
						b.put("lost", "what is lost")
						names := []string{}
						for i := range others {
							if name := "d/f" + strconv.Itoa(i); !alone {
								names = append(names, name)
								b.put(name, "before "+name)
							}
						}
						s := b.create(false)
						b.prompt(s, "zero")
						one := b.prompt(s, "one")
						b.record(s, append(names, "lost")...)
						b.put("lost", "left")
						for _, name := range names {
							b.put(name, "after "+name)
						}
						b.end(s)
						if restarted {
							s = b.restart(s)
						}
						b.damage("what is lost")
						leaf := s.LeafID()

						b.events = nil
						if on == "fail" {
							_, err := s.Rewind(t.Context(), RewindParams{EntryID: one, Conversation: conversation, Fail: true})
							refused(t, BlobDamaged, err)
							b.has("lost", "left")
							for _, name := range names {
								b.has(name, "after "+name)
							}
							require.Equal(t, leaf, s.LeafID())
							require.Empty(t, b.events)
							return
						}
						r := b.rewind(s, RewindParams{EntryID: one, Conversation: conversation, OnConflict: on})
						require.Len(t, r.Failed, 1)
						require.Equal(t, b.path("lost"), r.Failed[0].Path)
						require.Equal(t, checkpoints.CodeDamagedBlob, r.Failed[0].Code)
						require.Len(t, r.Restored, len(names))
						b.has("lost", "left")
						for _, name := range names {
							b.has(name, "before "+name)
						}
						require.Equal(t, leaf, s.LeafID(), "the conversation stays where it is")
						require.Contains(t, b.checkpointIDs(s), one, "the path can be tried again")
						if alone {
							require.Empty(t, b.events)
							_, err := s.Redo(t.Context(), RewindParams{})
							refused(t, NothingToRedo, err)
							return
						}
						require.Len(t, b.events, 1)
						s = b.restart(s)
						b.redo(s)
						b.has("lost", "left")
						for _, name := range names {
							b.has(name, "after "+name)
						}
					})
				}
			}
		}
	}
}
