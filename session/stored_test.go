package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// logPath is where the log of s lies.
func (b *box) logPath(s *Session) string { return filepath.Join(b.agent, s.place.log()) }

// shut ends the process and begins the next, with nothing open.
func (b *box) shut() {
	b.t.Helper()
	require.NoError(b.t, b.reg.Shutdown(b.t.Context()))
	b.openRegistry(b.reg.limits)
}

func (b *box) get(id string) *Session {
	b.t.Helper()
	s, err := b.reg.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return s
}

func (b *box) view(id string) *View {
	b.t.Helper()
	v, err := b.reg.View(b.t.Context(), id)
	require.NoError(b.t, err)
	return v
}

// shows are the ids that a view shows.
func (b *box) shows(v *View, all bool) []string {
	b.t.Helper()
	ids := []string{}
	require.NoError(b.t, v.Each(b.t.Context(), all, func(e ViewEntry) error {
		ids = append(ids, e.ID)
		return nil
	}))
	return ids
}

// replayed are the ids that a replay tells.
func (b *box) replayed(s *Session) []string {
	b.t.Helper()
	ids := []string{}
	require.NoError(b.t, s.Replay(b.t.Context(), func(e Entry) error {
		ids = append(ids, e.ID)
		return nil
	}))
	return ids
}

// story is a session with three turns and an answer each, closed. Its log and
// the ids of its entries are returned.
func (b *box) story() (id string, path string, log []byte, entries []string) {
	b.t.Helper()
	return b.storyOf(3)
}

func (b *box) storyOf(turns int) (id string, path string, log []byte, entries []string) {
	b.t.Helper()
	b.put("a", "a0\n")
	s := b.create(false)
	for i := range turns {
		entries = append(entries, b.prompt(s, fmt.Sprintf("message %d: naïve ☃", i)))
		b.write(s, "a", fmt.Sprintf("a%d\n", i+1))
		b.write(s, fmt.Sprintf("n%d", i), "new\n")
		entries = append(entries, b.append(s, Assistant, fmt.Sprintf("answer %d ☃", i)))
		b.end(s)
	}
	path = b.logPath(s)
	b.shut()
	log, err := os.ReadFile(path)
	require.NoError(b.t, err)
	return s.ID(), path, log, entries
}

// lineWith is where the line that holds text begins and ends in log.
func lineWith(t *testing.T, log []byte, text string) (start, end int) {
	t.Helper()
	i := bytes.Index(log, []byte(text))
	require.GreaterOrEqual(t, i, 0, text)
	start = bytes.LastIndexByte(log[:i], '\n') + 1
	return start, i + bytes.IndexByte(log[i:], '\n') + 1
}

func TestEveryCutOfASessionIsAPrefixOfIt(t *testing.T) {
	b := newBox(t)
	id, path, log, entries := b.storyOf(2)
	root, p, err := b.reg.find(id)
	require.NoError(t, err)
	first := bytes.IndexByte(log, '\n')
	for cut := range len(log) {
		require.NoError(t, os.WriteFile(path, log[:cut], 0o600))
		s, err := p.read(root, nil)
		if cut < first {
			refused(t, NotFound, err) // of such a session nobody was told
			require.ErrorIs(t, err, errUnfinished)
			continue
		}
		require.NoError(t, err)
		require.Empty(t, s.state.damage, "cut at %d", cut)
		var read []string
		for _, n := range s.state.branch(s.state.leaf) {
			read = append(read, n.id)
		}
		require.ElementsMatch(t, entries[:len(read)], read, "cut at %d", cut)
		if cut%50 == 0 {
			require.Len(t, b.shows(b.view(id), false), len(read))
		}
	}
}

// X2: whatever the last line lost, also half of a character or its newline
// alone, nothing good is lost when the session goes on.
func TestX2TheLastLineIsCut(t *testing.T) {
	b := newBox(t)
	id, path, log, entries := b.story()
	start, end := lineWith(t, log, "answer 2")
	snow := start + bytes.Index(log[start:], []byte("☃"))
	for name, cut := range map[string]int{"in half": (start + end) / 2, "inside a character": snow + 1, "its newline": end - 1, "all of it": start} {
		require.NoError(t, os.WriteFile(path, log[:cut], 0o600), name)
		want := entries[:5]
		if cut == end-1 {
			want = entries
		}
		require.Equal(t, want, b.shows(b.view(id), false), name)
		s := b.get(id)
		require.Equal(t, want, b.replayed(s), name)
		next := b.prompt(s, "and on")
		b.shut()
		v := b.view(id)
		require.Empty(t, v.Damage, name)
		require.Equal(t, append(append([]string{}, want...), next), b.shows(v, false), name)
		found, err := b.reg.Check(t.Context(), false)
		require.NoError(t, err)
		require.Empty(t, found.Findings, name)
	}
}

// X3: zeros or a bad line in the middle cost what they took the place of.
func TestX3DamageInTheMiddle(t *testing.T) {
	ruin := map[string]func(line []byte) []byte{
		"zeros, newline and all": func(l []byte) []byte { return make([]byte, len(l)) },
		"zeros":                  func(l []byte) []byte { return append(make([]byte, len(l)-1), '\n') },
		"a flipped bit":          func(l []byte) []byte { l = bytes.Clone(l); l[len(l)/2] ^= 1; return l },
		"half of it missing":     func(l []byte) []byte { return append(bytes.Clone(l[:len(l)/2]), '\n') },
		"another log's line":     func(l []byte) []byte { return []byte("{\"hello\":1}\n") },
		"it is there twice":      func(l []byte) []byte { return append(bytes.Clone(l), l...) },
	}
	for name, ruin := range ruin {
		for _, what := range []string{`"text":"message 1`, `"type":"before","turn":"%1"`, `"answer 1`} {
			b := newBox(t)
			id, path, log, entries := b.story()
			start, end := lineWith(t, log, strings.Replace(what, "%1", entries[2], 1))
			lost := bytes.Contains(log[start:end], []byte(`"type":"entry"`)) && name != "it is there twice"
			damaged := append(append(bytes.Clone(log[:start]), ruin(log[start:end])...), log[end:]...)
			require.NoError(t, os.WriteFile(path, damaged, 0o600))

			v := b.view(id)
			require.NotEmpty(t, v.Damage, name)
			var want []string
			for _, e := range entries {
				if !lost || !bytes.Contains(log[start:end], []byte(`"id":"`+e+`"`)) {
					want = append(want, e)
				}
			}
			require.Equal(t, want, b.shows(v, false), "%s for %s: the others are shown", name, what)
			infos, _, err := b.reg.List(t.Context(), ListParams{})
			require.NoError(t, err)
			require.Equal(t, "damaged", infos[0].Problem)

			s := b.get(id)
			require.Equal(t, want, b.replayed(s))
			_, err = s.Rewind(t.Context(), RewindParams{EntryID: entries[0]})
			refused(t, LogDamaged, err)
			_, err = s.Rewind(t.Context(), RewindParams{EntryID: Start})
			refused(t, LogDamaged, err)
			b.has("a", "a3\n")
			// What lies behind the damage does not need it.
			b.rewind(s, RewindParams{EntryID: entries[4]})
			b.has("a", "a2\n")
			b.lacks("n2")
			b.redo(s)
			b.has("a", "a3\n")
			b.prompt(s, "and on")
			b.shut()
		}
	}
}

// A rewind whose outcome cannot be read is not carried out again: what the
// user did since must stay.
func TestADamagedOutcomeIsNotRecovered(t *testing.T) {
	for _, and := range []string{"more follows", "nothing follows"} {
		b := newBox(t)
		b.put("a", "a0")
		s := b.create(false)
		u := b.prompt(s, "one")
		b.write(s, "a", "a1")
		b.end(s)
		b.rewind(s, RewindParams{EntryID: u})
		if and == "more follows" {
			require.NoError(t, s.Label(t.Context(), u, "x"))
		}
		path := b.logPath(s)
		b.shut()
		log, err := os.ReadFile(path)
		require.NoError(t, err)
		start, end := lineWith(t, log, `{"type":"rewound"`)
		log[(start+end)/2] ^= 1
		require.NoError(t, os.WriteFile(path, log, 0o600))
		b.put("a", "a1") // as the rewind found it
		s = b.get(s.ID())
		b.has("a", "a1")
		require.NotEmpty(t, s.state.damage)
		require.Nil(t, s.state.pending)
		_, err = s.Rewind(t.Context(), RewindParams{EntryID: u})
		refused(t, LogDamaged, err)
	}
}

func TestEveryFlippedByteOfASessionIsNoticed(t *testing.T) {
	b := newBox(t)
	id, path, log, _ := b.storyOf(1)
	root, p, err := b.reg.find(id)
	require.NoError(t, err)
	for i := range log {
		log[i] ^= 0x10
		require.NoError(t, os.WriteFile(path, log, 0o600))
		log[i] ^= 0x10
		s, err := p.read(root, nil)
		if err != nil {
			continue
		}
		if i == len(log)-1 {
			require.NotZero(t, s.tail.Torn) // nobody was told of a line without its newline
			continue
		}
		require.NotEmpty(t, s.state.damage, "byte %d", i)
	}
}

func TestANewerLogIsRefusedByNameAndLeftUntouched(t *testing.T) {
	b := newBox(t)
	id, path, log, _ := b.story()
	first, rest, _ := bytes.Cut(log, []byte("\n"))
	object, err := journal.Decode(bytes.Clone(first))
	require.NoError(t, err)
	object = bytes.Replace(object, []byte(`"version":1`), []byte(`"version":2`), 1)
	ours, err := journal.Encode(nil, object)
	require.NoError(t, err)
	for name, newer := range map[string][]byte{
		"with our sum":                append(bytes.Clone(ours), rest...),
		"with sums of another kind":   append([]byte(`{"type":"session","version":9,"id":"x","sha":"0"}`+"\n"), 0, 1, 2, 0xff),
		"and a tail that looks torn":  append(bytes.Clone(ours), rest[:len(rest)-9]...),
		"in a line without a newline": ours[:len(ours)-1],
		"with a number of any size":   append([]byte(`{"type":"session","version":99999999999999999999999}`), '\n'),
		"with a sum that is wrong":    append(bytes.Replace(bytes.Clone(first), []byte(`"version":1`), []byte(`"version":9`), 1), log[len(first):]...),
		"in a very long first line":   append([]byte(`{"type":"session","version":2,"more":"`+strings.Repeat("x", 2*headSize)+`"}`), '\n'),
	} {
		require.NoError(t, os.WriteFile(path, newer, 0o600), name)
		_, err := b.reg.Get(t.Context(), id)
		refused(t, NewerVersion, err)
		require.Contains(t, err.Error(), id, name)
		_, err = b.reg.View(t.Context(), id)
		refused(t, NewerVersion, err)
		infos, _, err := b.reg.List(t.Context(), ListParams{})
		require.NoError(t, err)
		require.Equal(t, "newer", infos[0].Problem, name)
		_, err = b.reg.Collect(t.Context(), CollectParams{PackAfter: 1})
		refused(t, NewerVersion, err)
		found, err := b.reg.Check(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, NewerLog, found.Findings[0].Kind, name)
		_, err = b.reg.Pack(t.Context(), 1)
		require.NoError(t, err)
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(newer, left), name)
	}
}

// What has the name of a log and is none is named by a check, and stands in
// nobody's way.
func TestWhatIsNoLogStandsInNobodysWay(t *testing.T) {
	b := newBox(t)
	id, path, log, _ := b.story()
	first, rest, _ := bytes.Cut(log, []byte("\n"))
	none := filepath.Join(filepath.Dir(path), "1700000000000_00000000-0000-7000-8000-000000000001.jsonl")
	tests := []struct {
		name string
		data string
		want string // what a check finds
	}{
		{"empty", "", Unfinished},
		{"torn in the first line", string(first[:40]), Unfinished},
		{"text", "hello\n", NotOurs},
		{"text without an end", "hello", NotOurs},
		{"other JSON", `{"type":"message"}` + "\n[1]\n", NotOurs},
		{"a long line", strings.Repeat("x", 3*headSize) + "\nmore", NotOurs},
		{"a first line that is not ours any more", "{" + string(log[2:]), DamagedLog},
		{"a first line that is gone", string(rest), DamagedLog},
		{"a sum behind a long line", strings.Repeat("x", headSize-5) + string(log), DamagedLog},
		{"zeros", string(make([]byte, 100)), DamagedLog},
		{"a whole first line with a wrong sum", strings.Replace(string(first), "test", "tesT", 1) + "\n", DamagedLog},
	}
	for _, test := range tests {
		require.NoError(t, os.WriteFile(none, []byte(test.data), 0o600))
		_, err := b.reg.Get(t.Context(), "00000000-0000-7000-8000-000000000001")
		infos, _, lerr := b.reg.List(t.Context(), ListParams{})
		require.NoError(t, lerr)
		_, gerr := b.reg.Collect(t.Context(), CollectParams{})
		if test.want == DamagedLog {
			refused(t, LogDamaged, err)
			refused(t, LogDamaged, gerr)
			require.Len(t, infos, 2, test.name)
		} else {
			refused(t, NotFound, err)
			require.NoError(t, gerr, test.name)
			require.Len(t, infos, 1, test.name)
			require.Equal(t, id, infos[0].SessionID)
		}
		found, err := b.reg.Check(t.Context(), true)
		require.NoError(t, err)
		require.Len(t, found.Findings, 1, test.name)
		require.Equal(t, test.want, found.Findings[0].Kind, test.name)
		left, err := os.ReadFile(none)
		require.NoError(t, err)
		require.Equal(t, test.data, string(left), test.name)
	}
	// Beside a packed one, nothing is as if it had never been.
	require.NoError(t, os.Rename(none, path))
	require.NoError(t, os.WriteFile(strings.TrimSuffix(path, logSuffix)+packedSuffix, []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := b.reg.Collect(t.Context(), CollectParams{})
	refused(t, LogDamaged, err)
}

// After a failed sync nobody knows what is on the disk: no turn is taken until
// the session is opened again and what is there has been read. A failed write
// is cut off, and the session goes on when there is room again.
func TestAFailedWriteOrSyncIsSaid(t *testing.T) {
	for _, op := range []string{"write", "sync"} {
		f := &faults{}
		b := newBox(t)
		reg, err := OpenRegistry(Options{Dir: b.agent, Limits: DefaultLimits, OpenRoot: f.open})
		require.NoError(t, err)
		b.reg = reg
		s := b.create(false)
		e := b.prompt(s, "one")
		failing := true
		f.fail = func(did, name string) bool { return failing && did == op && strings.HasSuffix(name, logSuffix) }
		_, err = s.Prompt(t.Context(), []byte(`[{"type":"text","text":"two"}]`))
		refused(t, StorageFailed, err)
		failing = false
		_, err = s.Prompt(t.Context(), []byte(`[{"type":"text","text":"three"}]`))
		if op == "sync" {
			refused(t, StorageFailed, err)
			require.Contains(t, err.Error(), "until it is closed and opened again")
			_, _, err := s.GetState(t.Context(), "")
			refused(t, StateNotFound, err) // it can be read
			require.NoError(t, reg.Close(t.Context(), s.ID()))
			s = b.get(s.ID())
			require.Equal(t, []string{e}, b.replayed(s))
			b.prompt(s, "three")
		} else {
			require.NoError(t, err)
		}
		require.Len(t, b.replayed(s), 2)
		require.NoError(t, reg.Shutdown(context.Background()))
		b.openRegistry(DefaultLimits)
		require.Empty(t, b.view(s.ID()).Damage)
	}
}
