package session

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// later lets time pass for the box's clock, and makes every log as old.
func (b *box) later(d time.Duration) {
	b.clock = time.Now().Add(d)
}

func (b *box) pack() Packed {
	b.t.Helper()
	p, err := b.reg.Pack(b.t.Context(), 24*time.Hour)
	require.NoError(b.t, err)
	return p
}

func TestAnIdleLogIsPackedAndUnpacked(t *testing.T) {
	b := newBox(t)
	id, path, log, entries := b.story()
	packed := strings.TrimSuffix(path, logSuffix) + packedSuffix
	before := b.view(id)
	infos, _, err := b.reg.List(t.Context(), ListParams{})
	require.NoError(t, err)

	b.later(23 * time.Hour)
	require.Zero(t, b.pack().Sessions, "not idle for long enough")
	b.later(25 * time.Hour)
	done := b.pack()
	require.Equal(t, 1, done.Sessions)
	require.EqualValues(t, len(log), done.Before)
	require.NoFileExists(t, path)
	info, err := os.Stat(packed)
	require.NoError(t, err)
	require.EqualValues(t, info.Size(), done.After)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Less(t, info.ModTime(), time.Now(), "it keeps its age")

	// It is listed and shown as it is.
	packedInfos, _, err := b.reg.List(t.Context(), ListParams{Cwd: b.dir})
	require.NoError(t, err)
	packedInfos[0].Size = infos[0].Size
	require.Equal(t, infos, packedInfos)
	v := b.view(id)
	require.True(t, v.Packed)
	require.Equal(t, entries, b.shows(v, false))
	require.Equal(t, before.Checkpoints, v.Checkpoints)
	found, err := b.reg.Check(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, found.Findings)
	found2, err := b.reg.Find(t.Context(), id[:20])
	require.NoError(t, err)
	require.Equal(t, id, found2)
	require.NoFileExists(t, path, "all this leaves it packed")

	// It is continued.
	s := b.get(id)
	require.NoFileExists(t, packed)
	plain, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(log, plain))
	b.rewind(s, RewindParams{EntryID: entries[2]})
	b.has("a", "a1\n")
	require.Zero(t, b.pack().Sessions, "it is open")
	b.shut()
	b.later(25 * time.Hour)
	require.Equal(t, 1, b.pack().Sessions)
	require.NoError(t, b.reg.Delete(t.Context(), id))
	require.NoFileExists(t, packed)
	_, err = b.reg.View(t.Context(), id)
	refused(t, NotFound, err)
}

func TestWhatIsNotWholeIsNotPacked(t *testing.T) {
	b := newBox(t)
	id, path, log, _ := b.story()
	ours := bytes.Clone(log)
	ours[len(ours)/2] ^= 1
	for name, content := range map[string][]byte{
		"torn": log[:len(log)-9], "without its newline": log[:len(log)-1], "damaged": ours, "nothing": nil,
		"newer": append([]byte(`{"type":"session","version":7}`), '\n'),
	} {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		b.later(48 * time.Hour)
		require.Zero(t, b.pack().Sessions, name)
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, left), name)
		require.NoFileExists(t, strings.TrimSuffix(path, logSuffix)+packedSuffix+tempSuffix)
	}
	require.NoError(t, os.WriteFile(path, log, 0o600))
	lock, err := journal.TryLock(strings.TrimSuffix(path, logSuffix) + lockSuffix)
	require.NoError(t, err)
	require.Zero(t, b.pack().Sessions, "another process has it open")
	require.NoError(t, lock.Unlock())
	require.Equal(t, 1, b.pack().Sessions)
	require.NotEmpty(t, b.view(id).Checkpoints)
}

// A packed log in which any byte is flipped is not taken for a good one.
func TestEveryFlippedByteOfAPackedLogIsNoticed(t *testing.T) {
	b := newBox(t)
	id, path, _, entries := b.storyOf(1)
	b.later(25 * time.Hour)
	require.Equal(t, 1, b.pack().Sessions)
	packed := strings.TrimSuffix(path, logSuffix) + packedSuffix
	data, err := os.ReadFile(packed)
	require.NoError(t, err)
	for i := range data {
		data[i] ^= 0x04
		require.NoError(t, os.WriteFile(packed, data, 0o600))
		data[i] ^= 0x04
		v, err := b.reg.View(t.Context(), id)
		if err == nil && len(v.Damage) == 0 {
			// Some bits of zstd's frame say nothing.
			require.Equal(t, entries, b.shows(v, false), "byte %d", i)
			continue
		}
		_, err = b.reg.Get(t.Context(), id)
		refused(t, LogDamaged, err)
		require.FileExists(t, packed, "it stays where somebody may look at it")
		require.NoFileExists(t, path)
	}
}

// A process that dies at any point of packing or unpacking leaves one log that
// says the same, and the next one goes on from there.
func TestADeathWhilePackingLosesNothing(t *testing.T) {
	b := newBox(t)
	id, path, log, entries := b.story()
	packed := strings.TrimSuffix(path, logSuffix) + packedSuffix
	f := &faults{}
	dying := func(do func(*Registry) error) (died bool) {
		reg, err := OpenRegistry(Options{Dir: b.agent, Limits: DefaultLimits, OpenRoot: f.open, Now: func() time.Time { return time.Now().Add(25 * time.Hour) }})
		require.NoError(t, err)
		f.n = 0
		err = do(reg)
		died = f.n >= f.dieAt
		require.Equal(t, died, err != nil, "%v", err)
		f.dieAt = 0
		reg.Shutdown(context.Background())
		return died
	}
	same := func(what string, at int) {
		b.openRegistry(DefaultLimits)
		v := b.view(id)
		require.Empty(t, v.Damage, "%s, dead at %d", what, at)
		require.Equal(t, entries, b.shows(v, false), "%s, dead at %d", what, at)
		infos, _, err := b.reg.List(t.Context(), ListParams{})
		require.NoError(t, err)
		require.Len(t, infos, 1)
		require.Empty(t, infos[0].Problem)
		require.NoError(t, b.reg.Shutdown(t.Context()))
	}
	for at := 1; ; at++ {
		f.dieAt = at
		died := dying(func(r *Registry) error {
			_, err := r.Pack(t.Context(), time.Hour)
			return err
		})
		same("packing", at)
		if !died {
			require.Greater(t, at, 4)
			break
		}
		require.NoError(t, os.WriteFile(path, log, 0o600)) // as it was, with what the death left beside it
	}
	require.NoFileExists(t, path)
	compressed, err := os.ReadFile(packed)
	require.NoError(t, err)
	for at := 1; ; at++ {
		f.dieAt = at
		died := dying(func(r *Registry) error {
			s, err := r.Get(t.Context(), id)
			if err == nil {
				require.Equal(t, entries, b.replayed(s))
			}
			return err
		})
		same("unpacking", at)
		if !died {
			require.Greater(t, at, 4)
			break
		}
		os.Remove(path)
		require.NoError(t, os.WriteFile(packed, compressed, 0o600))
	}
	require.NoFileExists(t, packed)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+tempSuffix))
	require.NoError(t, err)
	require.Empty(t, left)
}

// The plain log is the truth, whatever a compressed one beside it says.
func TestOfBothFormsThePlainOneCounts(t *testing.T) {
	b := newBox(t)
	id, path, log, entries := b.story()
	packed := strings.TrimSuffix(path, logSuffix) + packedSuffix
	b.later(25 * time.Hour)
	require.Equal(t, 1, b.pack().Sessions)
	old, err := os.ReadFile(packed)
	require.NoError(t, err)
	s := b.get(id)
	next := b.prompt(s, "more")
	b.shut()
	both := func() { require.NoError(t, os.WriteFile(packed, old, 0o600)) }

	both()
	require.Equal(t, append(entries, next), b.shows(b.view(id), false))
	infos, _, err := b.reg.List(t.Context(), ListParams{})
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.Equal(t, 7, infos[0].Entries)
	found, err := b.reg.Check(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, TwoForms, found.Findings[0].Kind)
	require.False(t, found.Findings[0].Damage())
	found, err = b.reg.Check(t.Context(), true)
	require.NoError(t, err)
	require.True(t, found.Findings[0].Repaired)
	require.NoFileExists(t, packed)

	both()
	require.Equal(t, append(entries, next), b.replayed(b.get(id)))
	require.NoFileExists(t, packed)
	b.shut()
	both()
	b.later(25 * time.Hour)
	require.Equal(t, 1, b.pack().Sessions)
	require.NoFileExists(t, path)
	require.Equal(t, append(entries, next), b.shows(b.view(id), false))

	// A deletion that dies in between does not bring the old one back.
	b.get(id)
	b.shut()
	both()
	f := &faults{fail: func(op, name string) bool { return op == "remove" && strings.HasSuffix(name, logSuffix) }}
	reg, err := OpenRegistry(Options{Dir: b.agent, Limits: DefaultLimits, OpenRoot: f.open})
	require.NoError(t, err)
	require.Error(t, reg.Delete(t.Context(), id))
	require.NoError(t, reg.Shutdown(t.Context()))
	require.NoFileExists(t, packed)
	require.Equal(t, append(entries, next), b.shows(b.view(id), false))
	require.NotEmpty(t, log)
}

func TestPackingEndsWhenItIsTold(t *testing.T) {
	b := newBox(t)
	_, path, _, _ := b.story()
	b.later(25 * time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.reg.Pack(ctx, time.Hour)
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	require.FileExists(t, path)
}
