package session

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// shop is an agent directory with sessions that are not open, listed by
// processes that tell which logs they read.
type shop struct {
	*box
	faults *faults
}

func newShop(t *testing.T, sessions int) *shop {
	s := &shop{newBox(t), &faults{}}
	for i := range sessions {
		one := s.create(false)
		s.prompt(one, fmt.Sprintf("message %d", i))
		require.NoError(t, s.reg.Close(t.Context(), one.ID()))
	}
	require.NoError(t, s.reg.Shutdown(t.Context()))
	s.next()
	return s
}

// next begins another process.
func (s *shop) next() {
	reg, err := OpenRegistry(Options{Dir: s.agent, Limits: DefaultLimits, OpenRoot: s.faults.open, Now: func() time.Time { s.clock = s.clock.Add(time.Millisecond); return s.clock }})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { reg.Shutdown(s.t.Context()) })
	s.reg = reg
}

// list returns the infos, and how many logs were read for them.
func (s *shop) list() ([]Info, int) {
	s.t.Helper()
	s.faults.reads()
	infos, _, err := s.reg.List(s.t.Context(), ListParams{Limit: 1000})
	require.NoError(s.t, err)
	logs := map[string]bool{}
	for _, name := range s.faults.reads() {
		logs[name] = true
	}
	return infos, len(logs)
}

func (s *shop) cache() string {
	return filepath.Join(s.agent, "sessions", checkpoints.WorkspaceKey(s.dir), summariesName)
}

func TestASummaryIsReadOnce(t *testing.T) {
	s := newShop(t, 5)
	first, read := s.list()
	require.Len(t, first, 5)
	require.Equal(t, 5, read)
	require.Equal(t, "message 4", first[0].Title, "newest first")
	require.NotZero(t, first[0].Size)
	again, read := s.list()
	require.Equal(t, first, again)
	require.Zero(t, read, "in one process")
	s.next()
	again, read = s.list()
	require.Equal(t, first, again)
	require.Zero(t, read, "in the next one")

	// One session changes: one log is read, and one line is added.
	before, err := os.ReadFile(s.cache())
	require.NoError(t, err)
	one := s.get(first[3].SessionID)
	s.prompt(one, "more")
	infos, read := s.list()
	require.Zero(t, read, "it is open here")
	require.Equal(t, "more", infos[0].LastUserMessage)
	require.NoError(t, s.reg.Close(t.Context(), one.ID()))
	infos, read = s.list()
	require.Equal(t, 1, read)
	require.Equal(t, "more", infos[0].LastUserMessage)
	require.Equal(t, "message 1", infos[0].FirstUserMessage)
	after, err := os.ReadFile(s.cache())
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(after, before), "nothing is written again")
	require.Equal(t, 1, bytes.Count(after[len(before):], []byte("\n")))
	s.next()
	again, read = s.list()
	require.Equal(t, infos, again)
	require.Zero(t, read)

	// A deleted one is gone, a new one is there.
	require.NoError(t, s.reg.Delete(t.Context(), infos[4].SessionID))
	again, _ = s.list()
	require.Equal(t, infos[:4], again)
}

func TestTheCacheDoesNotGrowForEver(t *testing.T) {
	s := newShop(t, 2)
	s.list()
	for i := range 150 {
		one, err := s.reg.Create(t.Context(), CreateParams{Cwd: s.dir})
		require.NoError(t, err)
		require.NoError(t, s.reg.Close(t.Context(), one.ID()))
		s.list()
		require.NoError(t, s.reg.Delete(t.Context(), one.ID()))
		if i%50 == 0 {
			s.next()
		}
	}
	b, err := os.ReadFile(s.cache())
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(b, []byte("\n")), 110) // of 150 that were added
	require.NoFileExists(t, s.cache()+tempSuffix)
}

// Whatever happens to the cache, a listing is right, and the cache is again.
func TestABadCacheIsRebuiltInSilence(t *testing.T) {
	s := newShop(t, 4)
	want, _ := s.list()
	good, err := os.ReadFile(s.cache())
	require.NoError(t, err)
	lines := bytes.SplitAfter(good, []byte("\n"))
	other := newShop(t, 4)
	other.list()
	foreign, err := os.ReadFile(other.cache())
	require.NoError(t, err)
	// A summary that says something else, of a log with another size or mtime.
	lie := func(size, mtime int64) []byte {
		sum, ok := parseSummary(mustDecode(t, lines[0]))
		require.True(t, ok)
		sum.size += size
		sum.mtime += mtime
		sum.info = []byte(`{"sessionId":"x","title":"a lie"}`)
		return sum.appendTo(nil)
	}
	tests := []struct {
		name  string
		cache []byte
		read  int
	}{
		{"gone", nil, 4},
		{"empty", []byte{}, 4},
		{"zeros", make([]byte, len(good)), 4},
		{"another directory's", foreign, 4},
		{"cut in a line", good[:len(good)-20], 1},
		{"a flipped bit", flip(good, len(lines[0])/2), 1},
		{"a line too few", bytes.Join(lines[1:], nil), 1},
		{"of another size", append(bytes.Clone(good), lie(1, 0)...), 1},
		{"of another time", append(bytes.Clone(good), lie(0, 1)...), 1},
		{"not ours", []byte("hello\n"), 4},
		{"a cache of another kind", mustEncode(t, `{"type":"summary","name":7}`), 4},
	}
	for _, test := range tests {
		if test.cache == nil {
			require.NoError(t, os.Remove(s.cache()))
		} else {
			require.NoError(t, os.WriteFile(s.cache(), test.cache, 0o600))
		}
		s.next()
		got, read := s.list()
		require.Equal(t, want, got, test.name)
		require.Equal(t, test.read, read, test.name)
		s.next()
		got, read = s.list()
		require.Equal(t, want, got, test.name)
		require.Zero(t, read, "%s: it is rebuilt", test.name)
	}
	// A directory that cannot be written costs time and nothing else.
	require.NoError(t, os.Remove(s.cache()))
	require.NoError(t, os.Mkdir(s.cache(), 0o700))
	s.next()
	got, _ := s.list()
	require.Equal(t, want, got)
}

// What is counted is what is listed, open or not, and no log is read for it
// that a listing would not read.
func TestStatsCountWhatIsListed(t *testing.T) {
	s := newShop(t, 3)
	require.Equal(t, [2]int{3, 3}, s.count())
	dir := filepath.Dir(s.cache())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "1_cut.jsonl"), []byte(headStart[:9]), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "2_foreign.jsonl"), []byte("hello\n"), 0o600))
	infos, _ := s.list()
	require.Len(t, infos, 3)
	require.Equal(t, [2]int{3, 3}, s.count(), "an unfinished log and one that is not ours are none")

	s.prompt(s.get(infos[0].SessionID), "more")
	s.prompt(s.create(true), "in memory")
	s.faults.reads()
	require.Equal(t, [2]int{4, 5}, s.count())
	require.Empty(t, s.faults.reads())
}

// count is how many sessions and checkpoints Stats tells of.
func (s *shop) count() [2]int {
	s.t.Helper()
	st, err := s.reg.Stats(s.t.Context())
	require.NoError(s.t, err)
	return [2]int{st.Sessions, st.Checkpoints}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

func mustDecode(t *testing.T, line []byte) []byte {
	o, err := journal.Decode(bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))))
	require.NoError(t, err)
	return o
}

func mustEncode(t *testing.T, object string) []byte {
	line, err := journal.Encode(nil, []byte(object))
	require.NoError(t, err)
	return line
}

func TestPagesAreStable(t *testing.T) {
	s := newShop(t, 7)
	all, _ := s.list()
	var got []Info
	cursor := ""
	for {
		infos, next, err := s.reg.List(t.Context(), ListParams{Limit: 3, Cursor: cursor, Cwd: s.dir})
		require.NoError(t, err)
		got = append(got, infos...)
		if next == "" {
			break
		}
		cursor = next
		// Somebody goes on with the newest: no page has anything twice or not at all.
		if len(got) == 3 {
			one := s.get(all[0].SessionID)
			s.prompt(one, "again")
		}
	}
	require.Equal(t, all, got)
	infos, _, err := s.reg.List(t.Context(), ListParams{Cwd: s.box.agent})
	require.NoError(t, err)
	require.Empty(t, infos, "another directory's")
	_, _, err = s.reg.List(t.Context(), ListParams{Cursor: "x"})
	refused(t, BadParams, err)
}

func TestASessionIsFoundByTheStartOfItsID(t *testing.T) {
	b := newBox(t)
	ids := []string{"aaaa-1", "aaaa-2", "ab", "abc", "b"}
	n := 0
	b.reg.newID = func() string { n++; return ids[n-1] }
	for range ids {
		s := b.create(false)
		require.NoError(t, b.reg.Close(t.Context(), s.ID()))
	}
	for prefix, want := range map[string]string{"aaaa-1": "aaaa-1", "ab": "ab", "abc": "abc", "b": "b"} {
		id, err := b.reg.Find(t.Context(), prefix)
		require.NoError(t, err, prefix)
		require.Equal(t, want, id)
	}
	_, err := b.reg.Find(t.Context(), "a")
	var several *AmbiguousError
	require.ErrorAs(t, err, &several)
	require.Equal(t, ids[:4], several.IDs)
	for _, prefix := range []string{"c", "aaaa-11", "../x", "*"} {
		_, err = b.reg.Find(t.Context(), prefix)
		refused(t, NotFound, err)
	}
	_, err = b.reg.Find(t.Context(), "")
	refused(t, BadParams, err)
}
