package fork

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/session"
)

// scene is a session after three turns, with a registry and a workspace of its own.
//
//	e1 "one"    a: 0 → 1          a1 "done one"
//	e2 "two"    a: 1 → 2, +n      a2 "done two"
//	e3 "three"                                     (only talk)
type scene struct {
	t           *testing.T
	agent, work string
	reg         *session.Registry
	s           *session.Session
	e1, e2, e3  string
	log         []string // what handlers heard
	atEvent     func(Event)
	event       Event // the newest that a handler was asked about
}

func newScene(t *testing.T, inMemory bool) *scene {
	dir := t.TempDir()
	sc := &scene{t: t, agent: filepath.Join(dir, "agent"), work: filepath.Join(dir, "work")}
	require.NoError(t, os.Mkdir(sc.work, 0o755))
	require.NoError(t, os.WriteFile(sc.path("a"), []byte("0"), 0o644))
	reg, err := session.OpenRegistry(session.Options{Dir: sc.agent, Limits: session.DefaultLimits, App: "oinod test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reg.Shutdown(context.Background())) })
	sc.reg = reg
	sc.s, err = reg.Create(t.Context(), session.CreateParams{Cwd: sc.work, Tracking: session.Files, InMemory: inMemory})
	require.NoError(t, err)
	sc.e1 = sc.prompt("one")
	sc.write("a", "1")
	sc.answer("a1", "done one")
	sc.e2 = sc.prompt("two")
	sc.write("a", "2")
	sc.write("n", "new")
	sc.answer("a2", "done two")
	sc.e3 = sc.prompt("three")
	_, err = sc.s.EndTurn(t.Context())
	require.NoError(t, err)
	return sc
}

func (sc *scene) path(name string) string { return filepath.Join(sc.work, name) }

func text(s string) json.RawMessage {
	b, _ := json.Marshal([]map[string]string{{"type": "text", "text": s}})
	return b
}

func (sc *scene) prompt(words string) string {
	e, err := sc.s.Prompt(sc.t.Context(), text(words))
	require.NoError(sc.t, err)
	return e.ID
}

func (sc *scene) answer(id, words string) {
	_, err := sc.s.Append(sc.t.Context(), []session.NewEntry{{ID: id, Role: session.Assistant, Content: text(words)}})
	require.NoError(sc.t, err)
}

func (sc *scene) write(name, content string) {
	_, err := sc.s.Write(sc.t.Context(), sc.path(name), []byte(content))
	require.NoError(sc.t, err)
}

// handler is one that hears, and votes as it is told.
func (sc *scene) handler(name string, a Answer) Handler {
	return &voter{name: name, log: &sc.log, vote: func(e Event) (Answer, error) {
		sc.event = e
		if sc.atEvent != nil {
			sc.atEvent(e)
		}
		return a, nil
	}}
}

// tree is every file below dir with its bytes.
func tree(t *testing.T, dir string) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(b)
		return err
	}))
	return files
}

// sessions is how many there are.
func (sc *scene) sessions() int {
	infos, _, err := sc.reg.List(sc.t.Context(), session.ListParams{})
	require.NoError(sc.t, err)
	return len(infos)
}

func (sc *scene) entries(id string) []string {
	s, err := sc.reg.Get(sc.t.Context(), id)
	require.NoError(sc.t, err)
	page, err := s.Entries(sc.t.Context(), session.EntriesQuery{})
	require.NoError(sc.t, err)
	return ids(page.Entries)
}

func TestAForkHoldsTheEntriesBeforeOrUpToTheNamedOne(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		sc := newScene(t, inMemory)
		all := []string{sc.e1, "a1", sc.e2, "a2", sc.e3}
		a, n := sc.path("a"), sc.path("n")
		files := tree(t, sc.work)
		for name, tt := range map[string]struct {
			p       Params
			entries []string
			text    string // "": none
			ahead   []string
		}{
			"the whole":             {Params{}, all, "", nil},
			"the whole, before":     {Params{Position: Before}, all, "", nil},
			"before the first":      {Params{EntryID: sc.e1}, nil, "one", []string{a, n}},
			"at the first":          {Params{EntryID: sc.e1, Position: At}, all[:1], "", []string{a, n}},
			"before an answer":      {Params{EntryID: "a1", Position: Before}, all[:1], "", []string{a, n}},
			"before the second":     {Params{EntryID: sc.e2}, all[:2], "two", []string{a, n}},
			"at the second":         {Params{EntryID: sc.e2, Position: At}, all[:3], "", nil},
			"before the third":      {Params{EntryID: sc.e3, Position: Before}, all[:4], "three", nil},
			"at the third, the end": {Params{EntryID: sc.e3, Position: At}, all, "", nil},
		} {
			t.Run(name, func(t *testing.T) {
				sc.t = t
				r, err := New(sc.reg).Fork(t.Context(), sc.s, tt.p, nil)
				require.NoError(t, err)
				require.NotEmpty(t, r.SessionID)
				require.NotEqual(t, sc.s.ID(), r.SessionID)
				require.ElementsMatch(t, tt.entries, sc.entries(r.SessionID))
				require.Equal(t, tt.text, r.Text)
				require.Equal(t, tt.text != "", r.HasText)
				require.Equal(t, tt.ahead, r.Ahead)
				require.False(t, r.Cancelled)
			})
		}
		require.Equal(t, files, tree(t, sc.work), "a fork touches no file")
	}
}

// F2: the fork lives on, and rewinds, without its source.
func TestAForkOwnsWhatItNeeds(t *testing.T) {
	sc := newScene(t, false)
	logs := func() map[string]string {
		out := tree(t, filepath.Join(sc.agent, "sessions"))
		for name := range out {
			if !strings.HasSuffix(name, sc.s.ID()+".jsonl") {
				delete(out, name)
			}
		}
		return out
	}
	before := logs()
	require.NotEmpty(t, before)
	r, err := New(sc.reg).Fork(t.Context(), sc.s, Params{EntryID: sc.e2, Position: At}, nil)
	require.NoError(t, err)
	require.Equal(t, before, logs(), "the source's log is as it was")

	require.NoError(t, sc.reg.Delete(t.Context(), sc.s.ID()))
	child, err := sc.reg.Get(t.Context(), r.SessionID)
	require.NoError(t, err)
	_, err = child.Rewind(t.Context(), session.RewindParams{EntryID: sc.e1, OnConflict: checkpoints.Keep})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"/a": "0"}, tree(t, sc.work))
}

// The turn that is open goes on in the source; in the fork it has ended.
func TestAForkOfAnOpenTurnLeavesItOpen(t *testing.T) {
	sc := newScene(t, false)
	e4 := sc.prompt("four")
	sc.write("a", "4")
	store := tree(t, filepath.Join(sc.agent, "sessions"))
	r, err := New(sc.reg).Fork(t.Context(), sc.s, Params{}, nil)
	require.NoError(t, err)
	for name, log := range store {
		require.Equal(t, log, tree(t, filepath.Join(sc.agent, "sessions"))[name], name)
	}
	child, err := sc.reg.Get(t.Context(), r.SessionID)
	require.NoError(t, err)
	_, err = child.Write(t.Context(), sc.path("a"), []byte("5"))
	var refused *session.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, session.NoTurn, refused.Kind)
	sc.write("n", "4")
	end, err := sc.s.EndTurn(t.Context())
	require.NoError(t, err)
	require.Equal(t, e4, end.EntryID)
	require.Len(t, end.Changed, 2)
}

func TestWhatCannotBeDoneIsRefusedBeforeAnybodyIsAsked(t *testing.T) {
	sc := newScene(t, false)
	f := New(sc.reg, sc.handler("a", Answer{Cancel: true, Reason: "never seen"}))
	kind := func(err error) session.Kind {
		var e *session.Error
		require.ErrorAs(t, err, &e)
		return e.Kind
	}
	_, err := f.Fork(t.Context(), sc.s, Params{EntryID: "../x"}, nil)
	require.Equal(t, session.EntryNotFound, kind(err))
	_, err = f.Fork(t.Context(), sc.s, Params{EntryID: sc.e1, Position: "beside"}, nil)
	require.Equal(t, session.BadParams, kind(err))
	for _, c := range []session.Conversation{session.RewindConversation, session.ForkConversation} {
		_, err = f.Rewind(t.Context(), sc.s, session.RewindParams{EntryID: "nope", Conversation: c}, nil)
		require.Contains(t, []session.Kind{session.EntryNotFound, session.CheckpointNotFound}, kind(err))
		_, err = f.Rewind(t.Context(), sc.s, session.RewindParams{EntryID: "a1", Conversation: c}, nil)
		require.Equal(t, session.NotAUserEntry, kind(err))
		require.NoError(t, os.WriteFile(sc.path("a"), []byte("mine"), 0o644))
		_, err = f.Rewind(t.Context(), sc.s, session.RewindParams{EntryID: sc.e1, Conversation: c, Fail: true}, nil)
		require.Equal(t, session.Conflict, kind(err))
	}
	require.Empty(t, sc.log)
	require.Equal(t, 1, sc.sessions())
}

func TestOneThatCancelsLeavesNothingBehind(t *testing.T) {
	sc := newScene(t, false)
	f := New(sc.reg, sc.handler("a", Answer{}), sc.handler("b", Answer{Cancel: true, Reason: "dirty tree"}))
	client := sc.handler("client", Answer{})
	store, files := tree(t, sc.agent), tree(t, sc.work)

	r, err := f.Fork(t.Context(), sc.s, Params{EntryID: sc.e2}, client)
	require.NoError(t, err)
	require.Equal(t, Result{Cancelled: true, Reason: "dirty tree"}, r)

	for _, c := range []session.Conversation{session.RewindConversation, session.ForkConversation} {
		r, err := f.Rewind(t.Context(), sc.s, session.RewindParams{EntryID: sc.e2, Conversation: c}, client)
		require.NoError(t, err)
		require.Equal(t, session.RewindResult{Restored: []string{}, Deleted: []string{}, Cancelled: true, Reason: "dirty tree"}, r)
	}
	require.Equal(t, slices.Repeat([]string{"a asked", "b asked"}, 3), sc.log, "each once, none after the one that cancelled, none told")
	require.Equal(t, store, tree(t, sc.agent))
	require.Equal(t, files, tree(t, sc.work))
	require.Equal(t, 1, sc.sessions())
}

func TestHandlersAreAskedBeforeAnyEffectAndToldAfterSuccess(t *testing.T) {
	for conversation, wantFork := range map[session.Conversation]bool{session.RewindConversation: false, session.ForkConversation: true} {
		t.Run(string(conversation), func(t *testing.T) {
			sc := newScene(t, false)
			store, files := tree(t, sc.agent), tree(t, sc.work)
			sc.atEvent = func(Event) {
				require.Equal(t, store, tree(t, sc.agent))
				require.Equal(t, files, tree(t, sc.work))
			}
			client := sc.handler("client", Answer{})
			r, err := New(sc.reg, sc.handler("a", Answer{})).Rewind(t.Context(), sc.s,
				session.RewindParams{EntryID: sc.e2, Conversation: conversation}, client)
			require.NoError(t, err)
			require.Equal(t, Event{
				Type: "session_before_fork", SessionID: sc.s.ID(), EntryID: &sc.e2, Position: "before",
				Conversation: string(conversation), Cwd: sc.work, Text: "two",
				Files: []session.PathChange{{Path: sc.path("a"), Change: "modified"}, {Path: sc.path("n"), Change: "created"}},
			}, sc.event)
			require.Equal(t, "two", r.Text)
			require.True(t, r.HasText)
			require.Equal(t, []string{sc.path("a")}, r.Restored)
			require.Equal(t, []string{sc.path("n")}, r.Deleted)
			require.Equal(t, wantFork, r.SessionID != "")
			require.Equal(t, []string{"a asked", "client asked", "a told " + r.SessionID, "client told " + r.SessionID}, sc.log)
			require.Equal(t, map[string]string{"/a": "1"}, tree(t, sc.work))
			if wantFork {
				require.Equal(t, []string{sc.e1, "a1"}, sc.entries(r.SessionID))
				require.Equal(t, []string{sc.e1, "a1", sc.e2, "a2", sc.e3}, sc.entries(sc.s.ID()))
			} else {
				require.Equal(t, []string{sc.e1, "a1"}, sc.entries(sc.s.ID()))
				require.Equal(t, 1, sc.sessions())
			}
		})
	}
}

func TestWhatAForkTellsItsHandlers(t *testing.T) {
	sc := newScene(t, false)
	var told []Forked
	client := &voter{name: "client", log: &sc.log, heard: func(e Forked) { told = append(told, e) }}
	f := New(sc.reg, sc.handler("a", Answer{}))
	whole, err := f.Fork(t.Context(), sc.s, Params{}, client)
	require.NoError(t, err)
	require.Equal(t, Event{
		Type: "session_before_fork", SessionID: sc.s.ID(), Position: "at", Conversation: "fork", Cwd: sc.work, Files: []session.PathChange{},
	}, sc.event)
	part, err := f.Fork(t.Context(), sc.s, Params{EntryID: "a1"}, client)
	require.NoError(t, err)
	a1 := "a1"
	require.Equal(t, []Forked{
		{Type: "session_fork", SessionID: sc.s.ID(), Position: "at", Conversation: "fork", Cwd: sc.work, NewSessionID: whole.SessionID},
		{Type: "session_fork", SessionID: sc.s.ID(), EntryID: &a1, Position: "before", Conversation: "fork", Cwd: sc.work, NewSessionID: part.SessionID},
	}, told)
}

func TestARewindThatKeepsTheConversationAsksNobody(t *testing.T) {
	sc := newScene(t, false)
	f := New(sc.reg, sc.handler("a", Answer{Cancel: true, Reason: "never seen"}))
	for _, p := range []session.RewindParams{
		{EntryID: sc.e2, Conversation: session.ForkConversation, DryRun: true},
		{EntryID: sc.e2, Conversation: session.RewindConversation, DryRun: true},
		{EntryID: sc.e2, Conversation: session.KeepConversation},
		{EntryID: sc.e1},
	} {
		r, err := f.Rewind(t.Context(), sc.s, p, nil)
		require.NoError(t, err)
		require.False(t, r.Cancelled)
		require.Equal(t, []string{sc.path("a")}, r.Restored)
	}
	require.Empty(t, sc.log)
	require.Equal(t, 1, sc.sessions())
}

func TestAForkFromTheStartHoldsNothing(t *testing.T) {
	sc := newScene(t, false)
	f := New(sc.reg, sc.handler("a", Answer{}))
	r, err := f.Rewind(t.Context(), sc.s, session.RewindParams{EntryID: session.Start, Conversation: session.ForkConversation}, nil)
	require.NoError(t, err)
	require.NotEmpty(t, r.SessionID)
	require.False(t, r.HasText)
	require.Empty(t, sc.entries(r.SessionID))
	require.Equal(t, map[string]string{"/a": "0"}, tree(t, sc.work))
	require.Equal(t, session.Start, *sc.event.EntryID)
}

// N8: a content that is gone keeps the conversation where it is, and no fork
// is made or told of.
func TestNoForkIsMadeWhenAPathReallyFails(t *testing.T) {
	for _, c := range []session.Conversation{session.RewindConversation, session.ForkConversation} {
		sc := newScene(t, false)
		for name := range tree(t, filepath.Join(sc.agent, "blobs")) {
			path := filepath.Join(sc.agent, "blobs", name)
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, make([]byte, info.Size()), 0o600))
		}
		f := New(sc.reg, sc.handler("a", Answer{}))
		r, err := f.Rewind(t.Context(), sc.s, session.RewindParams{EntryID: sc.e2, Conversation: c}, nil)
		require.NoError(t, err)
		require.Len(t, r.Failed, 1)
		require.Equal(t, sc.path("a"), r.Failed[0].Path)
		require.True(t, r.Failed[0].Code.Real())
		require.Empty(t, r.SessionID)
		require.Equal(t, []string{"a asked"}, sc.log)
		require.Equal(t, 1, sc.sessions())
		require.Equal(t, []string{sc.e1, "a1", sc.e2, "a2", sc.e3}, sc.entries(sc.s.ID()))
		for name := range tree(t, filepath.Join(sc.agent, "sessions")) {
			if strings.Contains(name, "_") {
				require.Contains(t, name, "_"+sc.s.ID()+".", "a leftover of the staged fork")
			}
		}
	}
}
