package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the agent has of the conversation follows the log, unless something was
// rewound or nobody knows.
func TestWhatAWrappedAgentKnows(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	is := func(want Wrapped) {
		t.Helper()
		want.Agent, want.ID = "a", "1"
		for range 2 { // as it is folded, and as it is read again
			now, ok := s.Wrapped("")
			require.True(t, ok)
			require.Equal(t, want, now)
			s = b.restart(s)
		}
	}
	set := func(w Wrapped, fresh bool) {
		t.Helper()
		w.Agent, w.ID = "a", "1"
		require.NoError(t, s.SetWrapped(t.Context(), w, fresh))
	}
	set(Wrapped{Since: Start}, false)
	first := b.prompt(s, "first")
	is(Wrapped{Since: Start, Knows: first})
	answer := b.append(s, Assistant, "answer")
	second := b.prompt(s, "second")
	is(Wrapped{Since: Start, Knows: second})

	b.rewind(s, RewindParams{EntryID: second, Conversation: RewindConversation})
	is(Wrapped{Since: Start, Knows: second})
	set(Wrapped{Since: Start, Doubt: true}, true)
	is(Wrapped{Since: Start, Doubt: true})
	set(Wrapped{Since: Start, Back: true}, false)
	is(Wrapped{Since: Start, Knows: answer, Back: true})
	third := b.prompt(s, "third")
	is(Wrapped{Since: Start, Knows: third})

	// In doubt it is told nothing, not even the first message.
	b.rewind(s, RewindParams{EntryID: first, Conversation: RewindConversation})
	set(Wrapped{Current: "2", Since: Start, Doubt: true}, true)
	b.prompt(s, "first again")
	is(Wrapped{Current: "2", Since: Start, Doubt: true})
}

// What an agent calls messages, and what it was told with them, is kept and
// goes along with a fork.
func TestWhatAnAgentCallsMessages(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	ids, err := s.Append(t.Context(), []NewEntry{{Role: User, Content: []byte(`"go"`), Told: "sha256:5"}})
	require.NoError(t, err)
	b.append(s, Assistant, "answer")
	second := b.prompt(s, "second")
	before := s.state.revision
	require.NoError(t, s.NameMessages(t.Context(), map[string]string{ids[0]: "u1", second: "u2", "nobody's": "x"}))
	require.NoError(t, s.NameMessages(t.Context(), map[string]string{ids[0]: "u1"}))
	require.Equal(t, before+2, s.state.revision, "a name is written once")
	fork := b.fork(s, "")
	for range 2 {
		for _, x := range []*Session{s, fork} {
			page, err := x.Entries(t.Context(), EntriesQuery{})
			require.NoError(t, err)
			require.Len(t, page.Entries, 3)
			require.Equal(t, "u1", page.Entries[0].MessageID)
			require.Equal(t, "sha256:5", page.Entries[0].Told)
			require.Equal(t, "u2", page.Entries[2].MessageID)
		}
		id := fork.ID()
		s = b.restart(s)
		fork = b.get(id)
	}

	// A branch that was left can be read, from anywhere to anywhere.
	b.rewind(s, RewindParams{EntryID: second, Conversation: RewindConversation})
	page, err := s.Entries(t.Context(), EntriesQuery{Through: second, After: ids[0]})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2)
	require.Equal(t, second, page.Entries[1].ID)
	_, err = s.Entries(t.Context(), EntriesQuery{Through: "nobody's"})
	require.ErrorContains(t, err, "nobody's")
}

// In which of the agent's sessions a conversation was is remembered, each with
// what the agent knows in it.
func TestWhereAWrappedConversationWas(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	set := func(w Wrapped, fresh bool) {
		t.Helper()
		w.Agent, w.ID = "a", "1"
		require.NoError(t, s.SetWrapped(t.Context(), w, fresh))
	}
	set(Wrapped{Since: Start}, false)
	first := b.prompt(s, "first")
	require.Empty(t, s.Earlier("a", "1"))
	set(Wrapped{Current: "2", PutBack: []string{"/x"}}, true)
	set(Wrapped{Current: "3", Since: first, Owed: true, PutBack: []string{"/y"}}, false)
	second := b.prompt(s, "second")
	for range 2 {
		require.Equal(t, []Wrapped{
			{Agent: "a", ID: "1", Since: Start, Knows: first}, {Agent: "a", ID: "1", Current: "2", PutBack: []string{"/x"}},
		}, s.Earlier("a", "1"))
		require.Empty(t, s.Earlier("a", "2"))
		now, _ := s.Wrapped("")
		require.Equal(t, Wrapped{Agent: "a", ID: "1", Current: "3", Since: first, Knows: second, Owed: true, PutBack: []string{"/y"}}, now)
		require.Equal(t, map[string]string{"2": "", "3": "1"}, s.state.renamed())
		s = b.restart(s)
	}
	set(Wrapped{Current: "3", Since: second, Hidden: true, PutBack: []string{"/z"}}, false)
	third := b.prompt(s, "third")
	now, _ := s.Wrapped("")
	require.Equal(t, Wrapped{Agent: "a", ID: "1", Current: "3", Since: second, Knows: third, Hidden: true}, now, "it was told")
	set(Wrapped{Current: "2"}, false) // back again
	require.Equal(t, map[string]string{"3": "", "2": "1"}, s.state.renamed())
	require.Len(t, s.Earlier("a", "1"), 2)
}

// How a session is set is kept, of each kind the newest, and written once.
func TestHowAWrappedSessionIsSet(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	set := func(method, key, params string) Setting { return Setting{method, key, []byte(params)} }
	require.NoError(t, s.Set(t.Context(), set("mode", "", `{"m":1}`), set("option", "a", `1`), set("option", "b", `2`)))
	require.NoError(t, s.Set(t.Context(), set("mode", "", `{"m":2}`)))
	revision := s.state.revision
	require.NoError(t, s.Set(t.Context(), set("mode", "", `{"m":2}`)))
	require.Equal(t, revision, s.state.revision)
	for range 2 {
		require.Equal(t, []Setting{set("option", "a", `1`), set("option", "b", `2`), set("mode", "", `{"m":2}`)}, s.Settings())
		s = b.restart(s)
	}
}

// The order in which a session was set is that of the last time, also where
// something is set as it was; and no more is written than is another.
func TestTheOrderInWhichAWrappedSessionIsSet(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	mode, model, option := Setting{"mode", "", []byte(`"a"`)}, Setting{"model", "", []byte(`"m"`)}, Setting{"option", "o", []byte(`1`)}
	is := func(written int, settings, want []Setting) {
		t.Helper()
		before := s.state.revision
		require.NoError(t, s.Set(t.Context(), settings...))
		require.EqualValues(t, written, s.state.revision-before)
		for range 2 { // as it is folded, and as it is read again
			require.Equal(t, want, s.Settings())
			s = b.restart(s)
		}
	}
	is(1, []Setting{mode}, []Setting{mode})
	is(1, []Setting{mode, model}, []Setting{mode, model})
	is(2, []Setting{model, mode}, []Setting{model, mode})
	is(0, []Setting{model, mode}, []Setting{model, mode})
	is(1, []Setting{model, mode, option}, []Setting{model, mode, option})
	is(2, []Setting{model, option, mode}, []Setting{model, option, mode})
	is(0, []Setting{option, mode}, []Setting{model, option, mode})
	is(1, []Setting{option}, []Setting{model, mode, option})
}

// What the agent knows and what was said last are of one moment, also while
// something is said.
func TestStandingIsOfOneMoment(t *testing.T) {
	b := newBox(t)
	s := b.create(true)
	_, leaf, ok := s.Standing()
	require.False(t, ok)
	require.Empty(t, leaf)
	require.NoError(t, s.SetWrapped(t.Context(), Wrapped{Agent: "a", ID: "1", Since: Start}, false))
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 2000 && err == nil; i++ {
			_, err = s.Append(t.Context(), []NewEntry{{Role: Assistant, Content: []byte(`"x"`)}})
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
		now, leaf, ok := s.Standing()
		require.True(t, ok)
		require.Equal(t, leaf, now.Knows)
	}
}
