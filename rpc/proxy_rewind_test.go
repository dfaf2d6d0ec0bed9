package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/session"
)

// asked is a between whose agent is played by the test, line by line.
type asked struct {
	*between
	t     *testing.T
	lines chan []byte
}

// Write takes what the agent is told.
func (a *asked) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		a.lines <- bytes.Clone(line)
	}
	return len(b), nil
}

// newAsked has a session "s" and two turns, "say one" and "say two".
func newAsked(t *testing.T) *asked {
	return newAskedAs(t, `"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"fork":{}}},"_meta":{"sessionRewind":{"version":1,"method":"_session/rewind"}}`)
}

// newAskedAs is newAsked with an agent that says this of itself.
func newAskedAs(t *testing.T, offers string) *asked {
	a := &asked{between: newBetween(t), t: t, lines: make(chan []byte, 100)}
	a.agentOut.w = a
	a.clientSays([]byte(`{"id":0,"method":"initialize","params":{"protocolVersion":1}}`))
	a.agentOut.flush()
	a.hears("initialize")
	a.agentSays([]byte(`{"id":0,"result":{` + offers + `}}`))
	a.clientSays(fmt.Appendf(nil, `{"id":1,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`, t.TempDir()))
	a.agentOut.flush()
	a.hears("session/new")
	a.agentSays([]byte(`{"id":1,"result":{"sessionId":"s"}}`))
	a.settle()
	for i, word := range []string{"one", "two"} {
		a.turn(10+i, "s", word)
	}
	return a
}

// hears waits for the next line to the agent, a request of a method.
func (a *asked) hears(method string) (id, params json.RawMessage) {
	a.t.Helper()
	select {
	case line := <-a.lines:
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		require.NoError(a.t, json.Unmarshal(line, &m))
		require.Equal(a.t, method, m.Method, string(line))
		return m.ID, m.Params
	case <-time.After(time.Minute):
		require.FailNow(a.t, "the agent hears nothing", method)
	}
	return nil, nil
}

func (a *asked) prompt(id int, session, text string) {
	a.clientSays(fmt.Appendf(nil, `{"id":%d,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}}`, id, session, text))
}

// answers is the agent's answer to the prompt that it hears now.
func (a *asked) answers(id int, session, text string) (params string) {
	a.t.Helper()
	_, raw := a.hears("session/prompt")
	a.agentSays(fmt.Appendf(nil, `{"method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`, session, "answer to "+text))
	a.agentSays(fmt.Appendf(nil, `{"id":%d,"result":{"stopReason":"end_turn"}}`, id))
	a.settle()
	return string(raw)
}

func (a *asked) turn(id int, session, text string) (params string) {
	a.t.Helper()
	a.prompt(id, session, text)
	return a.answers(id, session, text)
}

// rewinds rewinds the conversation to the second message.
func (a *asked) rewinds() *session.Session {
	a.t.Helper()
	kept, err := a.session(a.t.Context(), "s")
	require.NoError(a.t, err)
	checkpoints, err := kept.Checkpoints(a.t.Context())
	require.NoError(a.t, err)
	_, err = kept.Rewind(a.t.Context(), session.RewindParams{EntryID: checkpoints[1].EntryID, Conversation: session.RewindConversation})
	require.NoError(a.t, err)
	return kept
}

func (a *asked) result(id json.RawMessage, result string) {
	a.agentSays(fmt.Appendf(nil, `{"id":%s,"result":%s}`, id, result))
}

// An agent that says nothing is waited for, but not for ever. Its session is
// not used again, whatever it says later.
func TestAnAgentThatDoesNotAnswerARewind(t *testing.T) {
	a := newAsked(t)
	a.rewindLimit = time.Millisecond
	kept := a.rewinds()
	a.prompt(20, "s", "three")
	late, params := a.hears("_session/rewind")
	require.Contains(t, string(params), `"sessionId":"s"`)
	id, _ := a.hears("session/new")
	now, _ := kept.Wrapped("")
	require.True(t, now.Doubt, "until the new one has the prompt")
	a.result(late, `{"rewound":true}`)
	a.result(id, `{"sessionId":"s2"}`)
	told := a.answers(20, "s2", "three")
	require.Contains(t, told, "answer to one")
	require.NotContains(t, told, "two")
	now, _ = kept.Wrapped("")
	require.Equal(t, session.Wrapped{Agent: "agent", ID: "s", Current: "s2", Knows: kept.LeafID(), Since: now.Since}, now)
	a.prompt(21, "s", "four")
	a.answers(21, "s2", "four")
}

// A prompt that is called off while the agent goes back does not keep it from
// that. What was said since is one conversation.
func TestAPromptThatIsCalledOffWhileTheAgentGoesBack(t *testing.T) {
	for _, redo := range []bool{false, true} {
		t.Run(fmt.Sprint("redo ", redo), func(t *testing.T) {
			a := newAsked(t)
			kept := a.rewinds()
			a.prompt(20, "s", "three")
			id, _ := a.hears("_session/rewind")
			a.clientSays([]byte(`{"method":"session/cancel","params":{"sessionId":"s"}}`))
			a.result(id, `{"rewound":true}`)
			a.settle()
			require.Contains(t, told(a.client), `{"jsonrpc":"2.0","id":20,"result":{"stopReason":"cancelled"}}`)
			a.hears("session/cancel")
			if redo {
				_, err := kept.Redo(t.Context(), session.RewindParams{})
				require.NoError(t, err)
				a.prompt(21, "s", "four")
				id, _ = a.hears("session/new") // what was redone is gone there
				a.result(id, `{"sessionId":"s2"}`)
				require.Contains(t, a.answers(21, "s2", "four"), "answer to two")
				return
			}
			require.Equal(t, `{"sessionId":"s","prompt":[{"type":"text","text":"four"}]}`, a.turn(21, "s", "four"))
			page, err := kept.Entries(t.Context(), session.EntriesQuery{})
			require.NoError(t, err)
			require.Len(t, page.Entries, 4)
		})
	}
}

// What the agent has to be told of files is told, even if the prompt that it
// was for was called off.
func TestFilesThatWerePutBackAreToldOnce(t *testing.T) {
	a := newAsked(t)
	kept, err := a.session(t.Context(), "s")
	require.NoError(t, err)
	a.prompt(12, "s", "three")
	a.hears("session/prompt")
	w, err := kept.Write(t.Context(), kept.Cwd()+"/f", []byte("x"))
	require.NoError(t, err)
	require.False(t, w.Existed)
	a.agentSays([]byte(`{"id":12,"result":{"stopReason":"end_turn"}}`))
	a.settle()
	a.rewinds()
	a.prompt(20, "s", "four")
	id, _ := a.hears("_session/rewind")
	a.clientSays([]byte(`{"method":"session/cancel","params":{"sessionId":"s"}}`))
	a.result(id, `{"rewound":true}`)
	a.settle()
	a.hears("session/cancel")
	require.Contains(t, a.turn(21, "s", "five"), kept.Cwd()+"/f")
	require.NotContains(t, a.turn(22, "s", "six"), kept.Cwd()+"/f")
}

// The client's own fork, of a session that the agent has not gone back in yet,
// knows too much. It is not used.
func TestTheClientForksWhatWasRewound(t *testing.T) {
	a := newAsked(t)
	a.rewinds()
	a.clientSays([]byte(`{"id":30,"method":"session/fork","params":{"sessionId":"s"}}`))
	a.agentOut.flush()
	a.hears("session/fork")
	a.agentSays([]byte(`{"id":30,"result":{"sessionId":"f"}}`))
	a.settle()
	a.prompt(31, "f", "four")
	id, _ := a.hears("session/new")
	a.result(id, `{"sessionId":"f2"}`)
	told := a.answers(31, "f2", "four")
	require.Contains(t, told, "answer to one")
	require.NotContains(t, told, "two")
}

// Pieces that are passed on together have their message's id, also behind a
// tool, and in a replay are heard like any other.
func TestPiecesKeepTheirMessagesID(t *testing.T) {
	a := newAsked(t)
	piece := func(id, text string) string {
		return fmt.Sprintf(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":%q,"content":{"type":"text","text":%q}}}}`, id, text) + "\n"
	}
	says := func(lines ...string) {
		t.Helper()
		a.fromAgent = newLineReader(strings.NewReader(strings.Join(lines, "")), 1<<20)
		a.readAgent()
		a.settle()
	}
	a.prompt(20, "s", "three")
	a.hears("session/prompt")
	says(piece("a", "1"), piece("a", "2"), piece("b", "3"), piece("b", "4"),
		`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","status":"completed"}}}`+"\n",
		piece("b", "5"), piece("b", "6"), `{"id":20,"result":{"stopReason":"end_turn"}}`+"\n")
	kept, err := a.session(t.Context(), "s")
	require.NoError(t, err)
	page, err := kept.Entries(t.Context(), session.EntriesQuery{})
	require.NoError(t, err)
	got := ""
	for _, e := range page.Entries[5:] {
		text, err := kept.EntryText(e.ID)
		require.NoError(t, err)
		got += fmt.Sprintf("%s %s %s\n", e.Role, text, e.MessageID)
	}
	require.Equal(t, "assistant 12 a\nassistant 34 b\ntool  \nassistant 56 b\n", got)

	w := a.wrapped("s")
	w.replays(true)
	says(piece("b", "x"), piece("b", "y"), piece("b", "z"))
	w.replays(false)
	require.Equal(t, "b", w.replayed["s"].idOf(session.Assistant, fingerprint("xyz"), 1))
}

// wasIn has the conversation been in the agent's session id, which knows what
// was said up to now.
func (a *asked) wasIn(id string) *session.Session {
	a.t.Helper()
	kept, err := a.session(a.t.Context(), "s")
	require.NoError(a.t, err)
	require.NoError(a.t, kept.SetWrapped(a.t.Context(), session.Wrapped{Agent: "agent", ID: "s", Current: id, Since: session.Start}, false))
	require.NoError(a.t, kept.SetWrapped(a.t.Context(), session.Wrapped{Agent: "agent", ID: "s", Since: session.Start}, false))
	return kept
}

// rewindsTo rewinds the conversation to the n-th message, from 0.
func (a *asked) rewindsTo(kept *session.Session, n int) {
	a.t.Helper()
	checkpoints, err := kept.Checkpoints(a.t.Context())
	require.NoError(a.t, err)
	_, err = kept.Rewind(a.t.Context(), session.RewindParams{EntryID: checkpoints[n].EntryID, Conversation: session.RewindConversation})
	require.NoError(a.t, err)
}

// saysAgain is what the agent says of a session that it opens: its answer to
// the second message, by an id.
func (a *asked) saysAgain(session, id string) {
	a.update(session, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","messageId":%q,"content":{"type":"text","text":"answer to two"}}`, id))
}

// What the agent calls messages in one of its sessions it is not told of another.
func TestNamesAreThoseOfTheAgentsSession(t *testing.T) {
	t.Run("an earlier one that the agent does not open", func(t *testing.T) {
		a := newAsked(t)
		kept := a.wasIn("old")
		a.turn(12, "s", "three")
		a.rewindsTo(kept, 2)
		a.prompt(20, "s", "four")
		id, params := a.hears("session/load")
		require.Contains(t, string(params), `"sessionId":"old"`)
		a.saysAgain("old", "OLD")
		a.agentSays(fmt.Appendf(nil, `{"id":%s,"error":{"code":-32603,"message":"no"}}`, id))
		id, params = a.hears("_session/rewind")
		require.Contains(t, string(params), `"sessionId":"s"`)
		require.NotContains(t, string(params), "OLD")
		a.result(id, `{"rewound":true}`)
		a.answers(20, "s", "four")
	})
	t.Run("an earlier one that is open", func(t *testing.T) {
		a := newAsked(t)
		kept := a.wasIn("old")
		a.request(13, "session/load", fmt.Sprintf(`{"sessionId":"s","cwd":%q,"mcpServers":[]}`, a.wrapped("s").cwd()))
		a.hears("session/load")
		a.saysAgain("s", "NEW")
		a.agentSays([]byte(`{"id":13,"result":{}}`))
		a.settle()
		a.turn(14, "s", "three")
		a.rewindsTo(kept, 2)
		a.lives("old")
		a.prompt(20, "s", "four")
		require.Contains(t, a.answers(20, "old", "four"), `"sessionId":"old"`)
		a.rewindsTo(kept, 2)
		a.prompt(21, "s", "five")
		id, params := a.hears("_session/rewind")
		require.Contains(t, string(params), `"sessionId":"old"`)
		require.NotContains(t, string(params), "NEW")
		a.result(id, `{"rewound":true}`)
		a.answers(21, "old", "five")
	})
	t.Run("an earlier one as the client opens it", func(t *testing.T) {
		// An agent that forks behind a message that has an id, and only there.
		a := newAskedAs(t, `"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"fork":{}},"_meta":{"claudeCode":{"rewind":true}}}`)
		kept := a.wasIn("old")
		a.turn(12, "s", "three")
		a.rewindsTo(kept, 2)
		a.request(20, "session/load", fmt.Sprintf(`{"sessionId":"s","cwd":%q,"mcpServers":[]}`, a.wrapped("s").cwd()))
		id, params := a.hears("session/load")
		require.Contains(t, string(params), `"sessionId":"old"`)
		a.saysAgain("old", "OLD")
		a.agentSays(fmt.Appendf(nil, `{"id":%s,"error":{"code":-32603,"message":"no"}}`, id))
		id, _ = a.hears("session/new") // it cannot go back in its own
		a.result(id, `{"sessionId":"new"}`)
		a.settle()
	})
}
