package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// noise is n bytes of JSON text that do not compress.
func noise(seed uint64, n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return b
}

// grow changes about size bytes of a state, a JSON string, in places.
func grow(state []byte, seed uint64, size, places int) []byte {
	next := bytes.Clone(state)
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range places {
		copy(next[1+r.IntN(len(next)-2-size/places):], noise(seed*1000+uint64(i), size/places))
	}
	return next
}

func (b *box) append(s *Session, role Role, text string) string {
	b.t.Helper()
	c, err := encodeRecord(text)
	require.NoError(b.t, err)
	ids, err := s.Append(b.t.Context(), []NewEntry{{Role: role, Content: c}})
	require.NoError(b.t, err)
	return ids[0]
}

func (b *box) putState(s *Session, entry string, value []byte) {
	b.t.Helper()
	at, err := s.PutState(b.t.Context(), entry, value)
	require.NoError(b.t, err)
	if entry != "" {
		require.Equal(b.t, entry, at)
	}
}

func (b *box) hasState(s *Session, entry, at string, value []byte) {
	b.t.Helper()
	got, v, err := s.GetState(b.t.Context(), entry)
	require.NoError(b.t, err)
	require.Equal(b.t, at, got)
	require.True(b.t, bytes.Equal(value, v), "another state at %s", at)
}

// fork makes a session of the branch up to and with an entry.
func (b *box) fork(s *Session, at string) *Session {
	b.t.Helper()
	entries, err := s.Branch(at)
	require.NoError(b.t, err)
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	c, err := b.reg.Stage(b.t.Context(), s, ids, nil)
	require.NoError(b.t, err)
	require.NoError(b.t, c.Publish(b.t.Context()))
	fork, err := b.reg.Get(b.t.Context(), c.ID())
	require.NoError(b.t, err)
	return fork
}

// storeBytes is what the blob store takes on disk.
func (b *box) storeBytes() int64 {
	b.t.Helper()
	var n int64
	files, err := os.ReadDir(filepath.Join(b.agent, "blobs"))
	require.NoError(b.t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(b.t, err)
		n += info.Size()
	}
	return n
}

func TestStatesAreStoredAgainstEachOther(t *testing.T) {
	for _, places := range []int{1, 40} {
		b := newBox(t)
		s := b.create(false)
		state := append(append([]byte{'"'}, noise(1, 2<<20)...), '"')
		var entries []string
		states := map[string][]byte{}
		for i := range 100 {
			e := b.append(s, User, fmt.Sprint(i))
			b.putState(s, e, state)
			entries, states[e] = append(entries, e), state
			state = grow(state, uint64(i+2), 10<<10, places)
		}
		s = b.restart(s) // which also syncs and closes the store
		require.Less(t, b.storeBytes(), int64(8<<20), "100 states of 2 MiB that differ by 10 KiB in %d places", places)
		for i, e := range entries {
			if i%5 == 0 || i > 90 {
				b.hasState(s, e, e, states[e])
			}
			require.LessOrEqual(t, len(s.state.driver[e].Chain), bits.Len(uint(i))+1, "state %d is read without reading all others", i)
		}
	}
}

func TestAStateComesBackWhereARewindReturnsTo(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		b := newBox(t)
		s := b.create(inMemory)
		_, _, err := s.GetState(t.Context(), "")
		refused(t, StateNotFound, err)
		u1 := b.prompt(s, "one")
		a1 := b.append(s, Assistant, "yes")
		v1 := append(noise(1, 20<<10), '1')
		b.putState(s, a1, v1)
		u2 := b.prompt(s, "two")
		b.hasState(s, "", a1, v1) // nearest above
		v2 := grow(v1, 2, 100, 3)
		b.putState(s, u2, v2)
		v3 := grow(v2, 3, 100, 3)
		b.putState(s, "", v3) // in the place of v2
		b.hasState(s, "", u2, v3)
		if !inMemory {
			s = b.restart(s)
		}
		fork := b.fork(s, u2)
		b.rewind(s, RewindParams{EntryID: u2, Conversation: RewindConversation})
		b.hasState(s, "", a1, v1)
		b.hasState(s, u2, u2, v3) // the branch that was left has its own
		u3 := b.prompt(s, "another two")
		v4 := grow(v1, 4, 100, 3)
		b.putState(s, u3, v4)
		b.hasState(s, "", u3, v4)
		b.rewind(s, RewindParams{EntryID: u1, Conversation: RewindConversation})
		_, _, err = s.GetState(t.Context(), "")
		refused(t, StateNotFound, err)

		// The fork has what it needs when its source is gone.
		require.NoError(t, b.reg.Delete(t.Context(), s.ID()))
		b.hasState(fork, "", u2, v3)
		_, _, err = fork.GetState(t.Context(), u1)
		refused(t, StateNotFound, err)
	}
}

func TestAStateOutlivesADamagedBase(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	v1 := noise(1, 20<<10)
	e := b.prompt(s, "one")
	b.putState(s, e, v1)
	rec := *s.state.driver[e]
	rec.Chain = nil
	rec.Chain = append(rec.Chain, rec.Digest)
	rec.Chain[0][0] ^= 1 // a content that is not there
	s.state.driver[e] = &rec
	_, _, err := s.GetState(t.Context(), e)
	refused(t, BlobMissing, err)
	v2 := grow(v1, 2, 100, 1)
	u2 := b.prompt(s, "two")
	b.putState(s, u2, v2)
	b.hasState(s, u2, u2, v2)
	require.Zero(t, s.state.driver[u2].N)
}

func TestAStateIsAsLargeAsAllowed(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	b.prompt(s, "one")
	large := bytes.Repeat([]byte{' '}, maxState)
	large[0] = '1'
	b.putState(s, "", large)
	large[maxState-1] = '\n'
	b.putState(s, "", large)
	_, v, err := s.GetState(t.Context(), "")
	require.NoError(t, err)
	require.True(t, bytes.Equal(large, v))
	_, err = s.PutState(t.Context(), "", json.RawMessage(append(large, ' ')))
	refused(t, BadParams, err)
	small := []byte("null")
	b.putState(s, "", small)
	b.hasState(s, "", s.state.leaf.id, small)
}
