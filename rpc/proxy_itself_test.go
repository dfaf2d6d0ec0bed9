package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/session"
)

// A client may rewind and fork the agent itself: what the log says of it then.

// clientRewinds is a request of the client's to the agent, of which the latter
// hears: to before a message by an id, and by what it says ("": by the id only).
func (a *asked) clientRewinds(id int, message, text string) {
	a.t.Helper()
	at := fmt.Sprintf(`{"messageId":%q}`, message)
	if text != "" {
		at = fmt.Sprintf(`{"messageId":%q,"messageFingerprint":%q,"messageOccurrence":1}`, message, fingerprint(text))
	}
	a.request(id, "_session/rewind", fmt.Sprintf(`{"sessionId":"s","beforeMessage":%s}`, at))
	a.hears("_session/rewind")
}

// rewound is the agent's good answer to it.
func (a *asked) rewound(id int) {
	a.agentSays(fmt.Appendf(nil, `{"id":%d,"result":{"rewound":true}}`, id))
}

// standing is what the log has of the session, and of what the agent knows.
func (a *asked) standing() (kept *session.Session, messages string, now session.Wrapped) {
	a.t.Helper()
	a.settle()
	kept, err := a.session(a.t.Context(), "s")
	require.NoError(a.t, err)
	page, err := kept.Entries(a.t.Context(), session.EntriesQuery{})
	require.NoError(a.t, err)
	for _, e := range page.Entries {
		text, err := kept.EntryText(e.ID)
		require.NoError(a.t, err)
		messages += text + "\n"
	}
	now, _ = kept.Wrapped("")
	return kept, messages, now
}

// Where nobody knows how far the agent went back, what was said is counted no
// more: the next rewind of ours would take it to a wrong place.
func TestAClientRewindsTheAgentToAnUnknownPlace(t *testing.T) {
	a := newAsked(t)
	a.turn(12, "s", "one")
	a.clientRewinds(20, "the client's own", "")
	a.rewound(20)
	kept, messages, now := a.standing()
	require.Equal(t, "one\nanswer to one\ntwo\nanswer to two\none\nanswer to one\n", messages)
	require.Equal(t, session.Wrapped{Agent: "agent", ID: "s", Knows: kept.LeafID(), Since: kept.LeafID(), Hidden: true}, now)
	require.Equal(t, `{"sessionId":"s","prompt":[{"type":"text","text":"one"}]}`, a.turn(21, "s", "one"), "it goes on as the client wants it")
	a.turn(22, "s", "five")
	a.rewindsTo(kept, 3)
	a.prompt(30, "s", "six")
	id, _ := a.hears("session/new")
	a.result(id, `{"sessionId":"n"}`)
	told := a.answers(30, "n", "six")
	require.Contains(t, told, "answer to two")
	require.NotContains(t, told, "five")
}

// So it is where the client goes on without waiting for the answer.
func TestAClientPromptsBeforeTheAgentHasGoneBack(t *testing.T) {
	a := newAsked(t)
	a.clientRewinds(20, "the client's own", "two")
	a.prompt(21, "s", "three")
	a.hears("session/prompt")
	a.rewound(20)
	a.settle()
	a.agentSays([]byte(`{"id":21,"result":{"stopReason":"end_turn"}}`))
	kept, messages, now := a.standing()
	require.Equal(t, "one\nanswer to one\ntwo\nanswer to two\nthree\n", messages)
	require.Equal(t, session.Wrapped{Agent: "agent", ID: "s", Knows: kept.LeafID(), Since: kept.LeafID(), Hidden: true}, now)
}

// Of a rewind of ours that the agent was yet to follow it has perhaps done more,
// or less. Then that session is not used again.
func TestAClientRewindsTheAgentAfterARewindOfOurs(t *testing.T) {
	a := newAsked(t)
	a.rewinds()
	a.clientRewinds(20, "the client's own", "")
	a.rewound(20)
	_, messages, now := a.standing()
	require.Equal(t, "one\nanswer to one\n", messages)
	require.True(t, now.Doubt)
	a.prompt(21, "s", "three")
	id, _ := a.hears("session/new")
	a.result(id, `{"sessionId":"n"}`)
	told := a.answers(21, "n", "three")
	require.Contains(t, told, "answer to one")
	require.NotContains(t, told, "two")
}

// A prompt that is on its way to the log when the agent answers stays there.
func TestTheAgentHasGoneBackWhileAPromptBegins(t *testing.T) {
	a := newAsked(t)
	w := a.wrapped("s")
	kept, err := w.session(t.Context())
	require.NoError(t, err)
	a.clientRewinds(20, "the client's own", "two")
	w.log.Lock() // as a prompt does
	a.rewound(20)
	r := w.begins(openLine([]byte(`{"id":21,"method":"session/prompt","params":{"sessionId":"s"}}`)))
	_, err = kept.Append(t.Context(), []session.NewEntry{{Role: session.User, Content: []byte(`"three"`)}})
	require.NoError(t, err)
	w.log.Unlock()
	_, messages, now := a.standing()
	require.Contains(t, messages, "three")
	require.True(t, now.Hidden)
	w.ends(r)
}

// Names are exact.
func TestWhatIsAGoodAnswerToARewind(t *testing.T) {
	t.Parallel()
	for answer, good := range map[string]bool{
		`{"rewound":true}`:                     true,
		`{"rewound":true,"sessionId":"s"}`:     true,
		`{"rewound":true,"SessionID":"other"}`: true,
		`{"rewound":true,"sessionId":"other"}`: false,
		`{"Rewound":true}`:                     false,
		`{"rewound":false,"Rewound":true}`:     false,
		`{"rewound":"yes"}`:                    false,
		`null`:                                 false,
		`[]`:                                   false,
		``:                                     false,
	} {
		require.Equal(t, good, hasRewound([]byte(answer), "s"), answer)
	}
}

// A prompt that is called off while it waits for what was said before has
// nothing done for it.
func TestAPromptThatIsCalledOffWhileItWaits(t *testing.T) {
	a := newAsked(t)
	a.rewindLimit = time.Millisecond
	a.rewinds()
	w := a.wrapped("s")
	w.log.Lock()
	a.prompt(20, "s", "three")
	a.clientSays([]byte(`{"method":"session/cancel","params":{"sessionId":"s"}}`))
	w.log.Unlock()
	a.settle()
	require.Contains(t, told(a.between.client), `"id":20,"result":{"stopReason":"cancelled"}`)
	a.hears("session/cancel")
	a.silent()
}

// forksBehind is what an agent says of itself that forks behind a message of its own.
const forksBehind = `"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"fork":{}},"_meta":{"claudeCode":{"rewind":true}}}`

// A fork at a place that nobody knows has nobody knows what.
func TestAClientForksTheAgentAtAnUnknownPlace(t *testing.T) {
	a := newAskedAs(t, forksBehind)
	a.request(20, "session/fork", fmt.Sprintf(`{"sessionId":"s","cwd":%q,"mcpServers":[],"_meta":{"claudeCode":{"rewindTo":"?"}}}`, a.wrapped("s").cwd()))
	_, params := a.hears("session/fork")
	require.Contains(t, string(params), `"rewindTo":"?"`)
	a.agentSays([]byte(`{"id":20,"result":{"sessionId":"f"}}`))
	a.settle()
	kept, err := a.wrapped("f").session(context.Background())
	require.NoError(t, err)
	now, _ := kept.Wrapped("")
	require.Equal(t, session.Wrapped{Agent: "agent", ID: "f", Knows: kept.LeafID(), Since: kept.LeafID(), Hidden: true}, now)

	// Where the fork is ours, it is of the whole, for the agent too.
	kept, err = a.session(t.Context(), "s")
	require.NoError(t, err)
	require.NoError(t, kept.SetWrapped(t.Context(), session.Wrapped{Agent: "agent", ID: "s", Since: session.Start, Back: true}, false))
	a.request(21, "session/fork", fmt.Sprintf(`{"sessionId":"s","cwd":%q,"mcpServers":[],"messageId":"?","_meta":{"x":1,"claudeCode":{"rewindTo":"?"}}}`, a.wrapped("s").cwd()))
	id, params := a.hears("session/fork")
	a.result(id, `{"sessionId":"g"}`)
	a.settle()
	require.JSONEq(t, fmt.Sprintf(`{"sessionId":"s","cwd":%q,"mcpServers":[],"_meta":{"x":1,"claudeCode":{}}}`, a.wrapped("s").cwd()), string(params))
}

// Each way's place goes, and all else stays.
func TestAPlaceIsTakenOut(t *testing.T) {
	t.Parallel()
	for meta, want := range map[string]string{
		`{"claudeCode":{"rewindTo":"a","options":{"b":1}},"c":[2]}`:       `{"claudeCode":{"options":{"b":1}},"c":[2]}`,
		`{"jetbrains":{"air":{"fork":{"messageId":"a"},"version":1}}}`:    `{"jetbrains":{"air":{"version":1}}}`,
		`{"oino":{"entryId":"a","position":"before","tracking":"files"}}`: `{"oino":{"tracking":"files"}}`,
		`{"claudeCode":null,"jetbrains":{"air":5},"oino":[]}`:             `{"claudeCode":null,"jetbrains":{"air":5},"oino":[]}`,
		`null`: `null`,
	} {
		params := cloned([]byte(`{"cwd":"/w","messageId":"m","_meta":` + meta + `}`))
		require.JSONEq(t, `{"cwd":"/w","_meta":`+want+`}`, string(mustEncode(withoutPlace(params))))
		require.Contains(t, params, "messageId", "what was asked stays")
	}
	require.Nil(t, withoutPlace(nil))
}
