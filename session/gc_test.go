package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

func (b *box) collect(p CollectParams) Collected {
	b.t.Helper()
	c, err := b.reg.Collect(b.t.Context(), p)
	require.NoError(b.t, err)
	return c
}

// whole asserts that every log and every content is good.
func (b *box) whole() {
	b.t.Helper()
	found, err := b.reg.Check(b.t.Context(), false)
	require.NoError(b.t, err)
	require.Empty(b.t, found.Findings)
}

// X8: a deleted session's space is freed; what its forks need stays.
func TestX8DeleteThenCollect(t *testing.T) {
	b := newBox(t)
	b.put("a", "a0\n")
	s := b.create(false)
	u1 := b.prompt(s, "one")
	b.write(s, "a", "a1\n")
	b.putState(s, u1, noise(1, 50<<10))
	u2 := b.prompt(s, "two")
	b.write(s, "a", string(noise(2, 100<<10)))
	b.putState(s, u2, grow(noise(1, 50<<10), 3, 100, 1))
	b.end(s)
	fork := b.fork(s, u1)
	require.Zero(t, b.collect(CollectParams{}).Blobs, "all is needed")
	big := b.storeBytes()
	require.NoError(t, b.reg.Delete(t.Context(), s.ID()))

	would := b.collect(CollectParams{DryRun: true})
	require.Greater(t, would.Bytes, int64(60<<10))
	require.Equal(t, big, b.storeBytes(), "a dry run frees nothing")
	freed := b.collect(CollectParams{})
	require.Equal(t, would.Blobs, freed.Blobs)
	require.Less(t, b.storeBytes(), big-60<<10)
	b.whole()
	b.hasState(fork, "", u1, noise(1, 50<<10))
	r := b.rewind(fork, RewindParams{EntryID: u1, OnConflict: checkpoints.Overwrite})
	require.Empty(t, r.Failed)
	b.has("a", "a0\n")

	require.NoError(t, b.reg.Delete(t.Context(), fork.ID()))
	b.collect(CollectParams{})
	_, stats, err := b.reg.store.Stats()
	require.NoError(t, err)
	require.Less(t, stats, int64(4<<10), "nothing is left but files without contents")
}

// What a redo brings back, the baseline and what was evicted, what a staged
// fork holds, and what others ask for: all of it stays, and nothing else does.
func TestCollectKeepsWhatMayBeAskedFor(t *testing.T) {
	b := newBox(t)
	b.openRegistry(Limits{MaxCheckpoints: 2, MaxSnapshotBytes: 1 << 20, MaxMessageBytes: 1 << 20})
	// Every content fills a segment's worth of noise, so that dead ones go.
	content := func(i int) string { return string(noise(uint64(100+i), 40<<10)) }
	b.put("a", content(0))
	s := b.create(false)
	var users []string
	for i := 1; i <= 4; i++ {
		users = append(users, b.prompt(s, fmt.Sprint(i)))
		b.write(s, "a", content(i))
		b.end(s)
	}
	b.put("a", content(9)) // the user's, which only a redo's copy will keep
	b.rewind(s, RewindParams{EntryID: users[2], OnConflict: checkpoints.Overwrite})
	b.collect(CollectParams{})
	b.whole()
	b.redo(s)
	b.has("a", content(9))
	b.rewind(s, RewindParams{EntryID: Start, OnConflict: checkpoints.Overwrite})
	b.has("a", content(0))
	b.collect(CollectParams{})
	b.redo(s)
	b.has("a", content(9))
	b.whole()

	// A fork that is not published yet.
	entries, err := s.Branch("")
	require.NoError(t, err)
	c, err := b.reg.Stage(t.Context(), s, []string{entries[0].ID, entries[1].ID, entries[2].ID}, nil)
	require.NoError(t, err)
	require.NoError(t, b.reg.Close(t.Context(), s.ID()))
	extra, err := b.reg.store.Put([]byte(content(77)))
	require.NoError(t, err)
	require.NoError(t, b.reg.store.Sync())
	b.collect(CollectParams{Roots: []Roots{func(_ context.Context, mark func(blobs.Digest)) error { mark(extra); return nil }}})
	require.NoError(t, b.reg.store.Check(extra))
	require.NoError(t, c.Publish(t.Context()))
	b.whole()

	// A new message ends redo: what only it needed goes.
	s = b.get(s.ID())
	b.rewind(s, RewindParams{EntryID: Start, OnConflict: checkpoints.Overwrite})
	b.prompt(s, "next")
	require.NoError(t, b.reg.Delete(t.Context(), c.ID()))
	require.NotZero(t, b.collect(CollectParams{}).Blobs)
	require.ErrorIs(t, b.reg.store.Check(extra), blobs.ErrMissing)
	b.whole()

	_, err = b.reg.store.Put([]byte("anything"))
	require.NoError(t, err)
	_, err = b.reg.Collect(t.Context(), CollectParams{Roots: []Roots{func(context.Context, func(blobs.Digest)) error { return os.ErrPermission }}})
	refused(t, StorageFailed, err)
}

// A content that was dead when the logs were read, and that a session has found
// and named since, stays; so does one of a session, or a fork, that is new.
func TestCollectSeesWhatHappensMeanwhile(t *testing.T) {
	for _, how := range []string{"a session goes on", "a new session", "a fork", "an import of all lines anew"} {
		b := newBox(t)
		dead := string(noise(7, 100<<10))
		gone := b.create(false)
		b.prompt(gone, "x")
		b.write(gone, "dead", dead)
		b.end(gone)
		s := b.create(false)
		u := b.prompt(s, "one")
		b.write(s, "b", "b1")
		b.end(s)
		require.NoError(t, b.reg.Delete(t.Context(), gone.ID()))
		require.NotZero(t, b.collect(CollectParams{DryRun: true}).Blobs)

		happened := false
		b.collect(CollectParams{Progress: func(done, total int) {
			if done < total || happened {
				return
			}
			happened = true
			to := s
			switch how {
			case "a new session":
				to = b.create(false)
			case "a fork":
				to = b.fork(s, u)
			case "an import of all lines anew":
				// The log is another file by now, and shorter.
				require.NoError(t, b.reg.Close(t.Context(), s.ID()))
				path := b.logPath(s)
				log, err := os.ReadFile(path)
				require.NoError(t, err)
				first := strings.IndexByte(string(log), '\n') + 1
				require.NoError(t, os.WriteFile(path+"2", log[:first], 0o600))
				require.NoError(t, os.Rename(path+"2", path))
				to = b.get(s.ID())
			}
			b.prompt(to, "again")
			require.NoError(t, os.Remove(b.path("dead")))
			b.put("dead", dead)
			b.record(to, "dead") // the content is there, so nothing is written
		}})
		require.True(t, happened)
		b.whole()
		require.NoError(t, b.reg.store.Check(blobs.Digest(sha256.Sum256([]byte(dead)))), how)
	}
}

func TestCollectRefusesWhatItCannotRead(t *testing.T) {
	b := newBox(t)
	id, path, log, _ := b.story()
	other := b.create(false)
	b.prompt(other, "x")
	require.NoError(t, b.reg.Close(t.Context(), other.ID()))
	log[len(log)/2] ^= 1
	require.NoError(t, os.WriteFile(path, log, 0o600))
	b.later(1000 * time.Hour)
	_, err := b.reg.Collect(t.Context(), CollectParams{OlderThan: time.Hour, PackAfter: time.Hour})
	refused(t, LogDamaged, err)
	require.Contains(t, err.Error(), id)
	require.NotContains(t, err.Error(), other.ID())
	require.FileExists(t, path)
	require.FileExists(t, b.logPath(other), "no session is removed either")
}

func TestCollectWaitsForNobodyForEver(t *testing.T) {
	b := newBox(t)
	b.story()
	_, store, err := b.reg.agentDir(false)
	require.NoError(t, err)
	release, err := store.Hold()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		<-asked
		cancel()
	}()
	_, err = b.reg.Collect(ctx, CollectParams{Progress: func(done, total int) {
		if done == total {
			close(asked)
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	release()
	b.collect(CollectParams{})
}

func TestOldSessionsGo(t *testing.T) {
	b := newBox(t)
	b.clock = time.Now().Add(-40 * 24 * time.Hour)
	old, oldPath, _, _ := b.story()
	openOld := b.create(false)
	b.prompt(openOld, "still at it")
	packed := b.create(false)
	b.prompt(packed, "packed")
	require.NoError(t, b.reg.Close(t.Context(), packed.ID()))
	month := time.Now().Add(-40 * 24 * time.Hour)
	for _, p := range []string{oldPath, b.logPath(packed), b.logPath(openOld)} {
		require.NoError(t, os.Chtimes(p, month, month))
	}
	b.clock = time.Now()
	require.Equal(t, 2, b.pack().Sessions)
	young := b.create(false)
	b.prompt(young, "today")
	require.NoError(t, b.reg.Close(t.Context(), young.ID()))

	// Another process collects; ours has one of the old ones open.
	other, err := OpenRegistry(Options{Dir: b.agent, Limits: DefaultLimits})
	require.NoError(t, err)
	defer other.Shutdown(t.Context())
	would, err := other.Collect(t.Context(), CollectParams{OlderThan: 30 * 24 * time.Hour, DryRun: true})
	require.NoError(t, err)
	require.Len(t, would.Removed, 3)
	done, err := other.Collect(t.Context(), CollectParams{OlderThan: 30 * 24 * time.Hour})
	require.NoError(t, err)
	var removed []string
	for _, i := range done.Removed {
		removed = append(removed, i.SessionID)
	}
	require.ElementsMatch(t, []string{old, packed.ID()}, removed)
	require.Equal(t, openOld.ID(), done.Kept[0].SessionID)
	infos, _, err := b.reg.List(t.Context(), ListParams{})
	require.NoError(t, err)
	require.Len(t, infos, 2)
	require.Equal(t, young.ID(), infos[0].SessionID)
	b.whole()
}

func TestLeftoversOfCrashesGo(t *testing.T) {
	b := newBox(t)
	id, path, _, entries := b.story()
	base := strings.TrimSuffix(path, logSuffix)
	dir := filepath.Dir(path)
	gone := []string{
		path + tempSuffix, base + packedSuffix + tempSuffix,
		filepath.Join(dir, "1_child."+"0199-not-there"+stagedSuffix),
		filepath.Join(dir, "1_child."+id+stagedSuffix+tempSuffix),
		filepath.Join(dir, "1_nobody"+lockSuffix),
	}
	for _, name := range gone {
		require.NoError(t, os.WriteFile(name, []byte(`{"type":"session","version":1,"id":"child"`), 0o600))
	}
	s := b.get(id)
	c, err := b.reg.Stage(t.Context(), s, entries[:2], nil)
	require.NoError(t, err)
	staged := filepath.Join(b.agent, c.session.place.staged(id))
	require.NoError(t, b.reg.Close(t.Context(), id))
	require.NoError(t, os.WriteFile(gone[3], []byte("{"), 0o600))
	fresh := filepath.Join(dir, "2_justmade"+lockSuffix)
	require.NoError(t, os.WriteFile(fresh, nil, 0o600))
	for _, name := range gone {
		require.NoError(t, os.Chtimes(name, time.Now(), time.Now().Add(-2*time.Hour)))
	}
	b.clock = time.Now()
	_, err = b.reg.Collect(t.Context(), CollectParams{PackAfter: time.Hour})
	refused(t, LogDamaged, err) // a staged fork that is torn may need anything, too
	require.NoError(t, os.Remove(gone[2]))
	b.collect(CollectParams{PackAfter: time.Hour})
	for _, name := range gone {
		require.NoFileExists(t, name)
	}
	require.FileExists(t, staged)
	require.FileExists(t, fresh)
	require.FileExists(t, base+lockSuffix)
	b.get(id)
	require.NoFileExists(t, staged, "its source has seen to it")
}
