package rpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// said makes entries: "U text", "A text", "T", with an id behind "#" where the
// agent gave one. They are called e1, e2 and so on.
func said(lines ...string) (all []session.Entry) {
	for i, line := range lines {
		line, id, _ := strings.Cut(line, "#")
		role, text, _ := strings.Cut(line, " ")
		e := session.Entry{ID: fmt.Sprintf("e%d", i+1), MessageID: id, Content: mustEncode([]any{protocol.Block(protocol.TextBlock(text))})}
		e.Role = map[string]session.Role{"U": session.User, "A": session.Assistant, "T": session.Tool}[role]
		all = append(all, e)
	}
	return all
}

func TestWhereAConversationIsCut(t *testing.T) {
	t.Parallel()
	talk := []string{"U go", "A one", "U go", "A two", "T", "A three", "U other", "A one"}
	named := []string{"U go#u1", "A one#a1", "U go#u2", "A two#a2", "T", "A three#a2", "U other#u3", "A one#a3"}
	for _, c := range []struct {
		name  string
		said  []string
		leaf  string
		since string
		want  string // before | last, as text/occurrence; "-": none
		can   string // r: _session/rewind, e: a fork that ends at, b: one before
	}{
		{"before the first", talk, "", session.Start, "e1 go 1 | -", "r"},
		{"said twice", talk, "e2", session.Start, "e3 go 2 | e2 one 1", "r"},
		{"the newest turn", talk, "e6", session.Start, "e7 other 1 | e6 three 1", "r"},
		{"with ids", named, "e2", session.Start, "u2 go 2 | a1 one 1", "reb"},
		{"one message, with a tool in it", named, "e6", session.Start, "u3 other 1 | a2 twothree 1", "reb"},
		{"all stays", named, "e8", session.Start, "- | a3 one 2", "e"},
		{"in the middle of a turn", named, "e4", session.Start, "", ""},
		{"not there", talk, "e9", session.Start, "", ""},
		{"a tool came last", []string{"U go", "A one#a1", "T", "U x", "A y"}, "e3", session.Start, "e4 x 1 | a1 one 1", "r"},
		{"nothing was answered", []string{"U go", "T", "U x", "A y"}, "e2", session.Start, "e3 x 1 | -", ""},
		{"seeded", talk, "e2", "told", "e3 go 2 | e2 one 1", "r"},
		{"before what was seeded", talk, "", "told", "", ""},
		{"with what nobody counted", talk, "e2", "", "e3 go 2 | e2 one 1", ""},
		{"with that and ids", named, "e2", "", "u2 go 2 | a1 one 1", "reb"},
		{"that, and the first", named, "", "", "u1 go 1 | -", "b"},
		{"an error before, which said the same", []string{"U go", "U go", "A one", "U x", "A y"}, "e1", session.Start, "e2 go 2 | -", ""},
		{"an error before, which said else", []string{"U no", "U go", "A one", "U x", "A y"}, "e3", session.Start, "e4 x 1 | e3 one 1", "r"},
		{"an error itself", []string{"U go", "A one", "U x", "U y", "A z"}, "e2", session.Start, "e3 x 1 | e2 one 1", ""},
		{"cut by us", []string{"U go", "A on#oino-cut-1", "A e#oino-cut-1", "U x", "A y"}, "e3", session.Start, "e4 x 1 | e2 one 1", "r"},
		{"the agent repeats an id in another turn", []string{"U go", "A a#m", "U x", "A b#m", "U y", "A c#m"}, "e4", session.Start, "e5 y 1 | m b 1", "re"},
	} {
		entries := said(c.said...)
		got, err := cutAfter(entries, c.leaf, c.since, false, nil)
		if c.want == "" {
			require.Error(t, err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		texts := map[string]string{}
		messages, err := messagesOf(entries)
		require.NoError(t, err)
		for _, m := range messages {
			texts[fingerprint(m.text)] = m.text
		}
		show := func(a *anchor) string {
			if a == nil {
				return "-"
			}
			return fmt.Sprint(a.MessageID, " ", texts[a.Fingerprint], " ", a.Occurrence)
		}
		require.Equal(t, c.want, show(got.before)+" | "+show(got.last), c.name)
		can := ""
		for _, x := range []struct {
			letter string
			ok     bool
		}{{"r", got.canRewind()}, {"e", got.canEndAt()}, {"b", got.canEndBefore()}} {
			if x.ok {
				can += x.letter
			}
		}
		require.Equal(t, c.can, can, c.name)
	}
}

// What the agent has of a message is told, not what the user wrote.
func TestAnAnchorIsOfWhatTheAgentGot(t *testing.T) {
	t.Parallel()
	entries := said("U go", "A one", "U go", "A two")
	entries[0].Told = fingerprint("words of ours. go")
	c, err := cutAfter(entries, "e2", session.Start, false, nil)
	require.NoError(t, err)
	require.Equal(t, 1, c.before.Occurrence)
	c, err = cutAfter(entries, "", session.Start, false, nil)
	require.NoError(t, err)
	require.Equal(t, entries[0].Told, c.before.Fingerprint)
	require.Equal(t, "sha256:090b6d95f29a5638955bac4d0cd4ba18e8733d26d0889afcc3d58c357847088e", fingerprint("naïve ☃"))
}

// A replay names messages, in pieces; what is not a message of either side, or
// has no id, is none.
func TestNamed(t *testing.T) {
	t.Parallel()
	var n named
	for _, u := range []string{
		`{"sessionUpdate":"user_message_chunk","messageId":"u1","content":{"type":"text","text":"g\u006f"}}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"text","text":"on"}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"c"}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"image","data":"AA=="}}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"text","text":"e"}}`,
		`{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}`,
		`{"sessionUpdate":"user_message","messageId":"u2","content":[{"type":"text","text":"g"},{"type":"text","text":"o"}]}`,
		`{"sessionUpdate":"agent_message_chunk","messageId":"u2","content":{"type":"text","text":"go"}}`,
	} {
		e := openLine([]byte(`{"method":"session/update","params":{"update":` + u + `}}`))
		e.openParams()
		n.hear(updateOf(e))
	}
	require.Equal(t, "u1", n.idOf(session.User, fingerprint("go"), 1))
	require.Equal(t, "u2", n.idOf(session.User, fingerprint("go"), 2))
	require.Equal(t, "a1", n.idOf(session.Assistant, fingerprint("one"), 1))
	require.Equal(t, "u2", n.idOf(session.Assistant, fingerprint("go"), 1))
	require.Empty(t, n.idOf(session.User, fingerprint("go"), 3))

	c, err := cutAfter(said("U go#old", "A one", "U go", "A two"), "e2", session.Start, false, &n)
	require.NoError(t, err)
	require.Equal(t, "u2", c.before.MessageID)
	require.Equal(t, "a1", c.last.MessageID)
	n.forget("u2")
	require.Equal(t, "u1", n.idOf(session.User, fingerprint("go"), 1))
	require.Empty(t, n.idOf(session.User, fingerprint("go"), 2))
	require.Empty(t, n.idOf(session.Assistant, fingerprint("go"), 1))
}

func TestAdverts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		result string
		want   adverts
	}{
		{`{}`, adverts{}},
		{`null`, adverts{}},
		{`{"_meta":{"jetbrains":{"air":{"version":1,"capabilities":["sessionRewind"]}}}}`, adverts{rewind: true}},
		{`{"_meta":{"jetbrains":{"air":{"version":2,"capabilities":["sessionRewind"]}}}}`, adverts{}},
		{`{"_meta":{"jetbrains":{"air":{"version":1,"capabilities":["sessionFork"]}}}}`, adverts{}},
		{`{"_meta":{"jetbrains":{"air":{"version":1,"capabilities":{"sessionRewind":true}}}}}`, adverts{}},
		{`{"_meta":{"sessionRewind":{"version":1,"method":"_session/rewind"}}}`, adverts{rewind: true}},
		{`{"_meta":{"sessionRewind":{"version":1,"method":"_other/rewind"}}}`, adverts{}},
		{`{"_meta":{"sessionRewind":{"version":2,"method":"_session/rewind"}}}`, adverts{}},
		{`{"_meta":{"sessionRewind":true,"jetbrains":5}}`, adverts{}},
		{`{"_meta":{"claudeCode":{"rewind":true}}}`, adverts{}},
		{`{"agentCapabilities":{"_meta":{"sessionRewind":{"version":1,"method":"_session/rewind"},"claudeCode":3}}}`, adverts{rewind: true}},
		{`{"agentCapabilities":{"_meta":{"claudeCode":{"promptQueueing":true,"rewind":true}}}}`, adverts{rewindTo: true}},
		{`{"agentCapabilities":{"_meta":{"claudeCode":{"rewind":false}}}}`, adverts{}},
		{`{"agentCapabilities":{"_meta":{"claudeCode":{"rewind":"yes"}}}}`, adverts{}},
		{`{"agentCapabilities":{"_meta":{"jetbrains":{"air":{"fork":{"version":1}}}}}}`, adverts{airFork: true}},
		{`{"agentCapabilities":{"sessionCapabilities":{"fork":{"messageId":{}}}}}`, adverts{forkMessage: true}},
		{`{"agentCapabilities":{"sessionCapabilities":{"fork":{"messageId":null}}}}`, adverts{}},
		{`{"agentCapabilities":{"sessionCapabilities":{"fork":{"messageId":false}}}}`, adverts{}},
		{`{"agentCapabilities":{"sessionCapabilities":{"fork":{}}}}`, adverts{}},
		{`{"capabilities":{"session":{"fork":{"messageId":{}}},"_meta":{"claudeCode":{"rewind":true}}}}`, adverts{forkMessage: true, rewindTo: true}},
		{`{"agentCapabilities":{"_meta":{"oino":{"version":1,"methods":["_oino/append","_oino/fork"]}}}}`, adverts{oinoPosition: true}},
		{`{"agentCapabilities":{"_meta":{"oino":{"version":1,"methods":["_oino/fork","_oino/rewind"]}}}}`, adverts{}}, // a wrap
	} {
		require.Equal(t, c.want, advertsOf([]byte(c.result)), c.result)
	}
}

// The place goes into the params, and takes nothing out of them.
func TestForkParams(t *testing.T) {
	t.Parallel()
	c, err := cutAfter(said("U go#u1", "A one#a1", "U x#u2", "A y#a2"), "e2", session.Start, false, nil)
	require.NoError(t, err)
	for _, x := range []struct {
		offers adverts
		meta   string
		want   string
	}{
		{adverts{rewindTo: true, forkMessage: true}, ``, `{"_meta":{"claudeCode":{"rewindTo":"a1"}}}`},
		{adverts{rewindTo: true}, `{"claudeCode":{"options":{"a":1}},"b":2}`, `{"_meta":{"claudeCode":{"options":{"a":1},"rewindTo":"a1"},"b":2}}`},
		{adverts{rewindTo: true}, `{"claudeCode":null}`, `{"_meta":{"claudeCode":{"rewindTo":"a1"}}}`},
		{adverts{airFork: true}, ``, `{"_meta":{"jetbrains":{"air":{"fork":{"version":1,"messageId":"a1","messageFingerprint":"` + fingerprint("one") + `","messageOccurrence":1}}}}}`},
		{adverts{forkMessage: true}, `{"b":2}`, `{"_meta":{"b":2},"messageId":"u2"}`},
		{adverts{oinoPosition: true}, `{"oino":{"tracking":"files"}}`, `{"_meta":{"oino":{"entryId":"u2","position":"before"}}}`},
	} {
		params := map[string]json.RawMessage{}
		if x.meta != "" {
			params["_meta"] = json.RawMessage(x.meta)
		}
		require.True(t, x.offers.forkAt(c, params))
		require.JSONEq(t, x.want, string(mustEncode(params)))
	}
	require.False(t, adverts{rewind: true}.forkAt(c, map[string]json.RawMessage{}))
}

// A change of the id is a new message, and a tool call ends one as well.
func TestHeardKeepsTheAgentsIDs(t *testing.T) {
	t.Parallel()
	var h heard
	text := func(s string) []byte { return protocol.TextBlock(s) }
	h.chunk(text("on"), "a")
	h.chunk(text("e"), "a")
	h.chunk(text("two"), "b")
	h.call([]byte(`{"toolCallId":"c","status":"completed"}`))
	h.chunk(text("more of two"), "b")
	h.chunk(text("nameless"), "")
	got := ""
	for _, e := range h.take(true) {
		blocks, err := protocol.ParseBlocks(e.Content)
		require.NoError(t, err)
		got += fmt.Sprintf("%s %s #%s\n", e.Role, textOfBlocks(blocks), e.MessageID)
	}
	require.Equal(t, "assistant one #a\nassistant two #b\ntool  #\nassistant more of two #b\nassistant nameless #\n", got)

	h.chunk(text("cut"), "c")
	require.Equal(t, "c", h.take(false)[0].MessageID, "the parts of a cut message have its id")
	h.chunk(text(" in two"), "c")
	require.Equal(t, "c", h.take(true)[0].MessageID)
}

// A short recap is part of the message's text, so that it can be told again,
// but for a command of the agent's, which has to come first.
func TestRecapBlocks(t *testing.T) {
	t.Parallel()
	prompt := func(text string) protocol.Blocks { return protocol.Blocks{protocol.Block(protocol.TextBlock(text))} }
	for _, c := range []struct {
		recap    recap
		embedded bool
		text     string
		want     string
		asText   bool
	}{
		{recap{}, true, "go", "", false},
		{recap{text: "r"}, true, "go", `"resource"`, false},
		{recap{text: "r"}, false, "go", `"text"`, true},
		{recap{text: "r", short: true}, true, "go", `"text"`, true},
		{recap{text: "r", short: true}, true, "/review", `"resource"`, false},
		{recap{text: "r", short: true}, false, "/review", `"text"`, true},
	} {
		block, asText := c.recap.block(c.embedded, prompt(c.text))
		require.Equal(t, c.asText, asText)
		require.Contains(t, string(block), c.want)
	}
}

// Where the agent has others before them, messages are not told by how often.
func TestCutBehindHiddenMessages(t *testing.T) {
	c, err := cutAfter(said("U go", "A one", "U more", "A two"), "e2", session.Start, true, nil)
	require.NoError(t, err)
	require.False(t, c.canRewind())
	c, err = cutAfter(said("U go#u1", "A one#a1", "U more#u2", "A two#a2"), "e2", session.Start, true, nil)
	require.NoError(t, err)
	require.True(t, c.canRewind())
}

// A place is where just one message is meant; what the agent calls it now comes
// before what it was called.
func TestWhereAClientGoesBackTo(t *testing.T) {
	t.Parallel()
	var renamed named
	renamed.list = []namedMessage{{session.User, "old3", fingerprint("x")}, {session.User, "new2", fingerprint("y")}}
	talk := []string{"U x#old1", "A a#m", "U y#old2", "A b#m", "U z#old3", "A c#n"}
	for _, c := range []struct {
		name  string
		said  []string
		names *named
		role  session.Role
		at    anchor
		want  string // "-": an error
	}{
		{"before one of the user's", talk, nil, session.User, anchor{MessageID: "old2"}, "e3"},
		{"behind one of the agent's", talk, nil, session.Assistant, anchor{MessageID: "n"}, ""},
		{"two of that id", talk, nil, session.Assistant, anchor{MessageID: "m"}, "-"},
		{"two of that id, whatever it says", talk, nil, session.Assistant, anchor{MessageID: "m", Fingerprint: fingerprint("a"), Occurrence: 1}, "-"},
		{"the user's of that id twice", []string{"U x#m1", "A a", "U y#m2", "A b", "U z#m1", "A c"}, nil, session.User, anchor{MessageID: "m1"}, "-"},
		{"by its new id", talk, &renamed, session.User, anchor{MessageID: "new2"}, "e3"},
		{"by its old one", talk, &renamed, session.User, anchor{MessageID: "old2"}, "e3"},
		{"of two, the one that is called so still", []string{"U y#old3", "A a", "U x#old1", "A b"}, &renamed, session.User, anchor{MessageID: "old3"}, "e3"},
		{"by what it says", talk, nil, session.User, anchor{MessageID: "?", Fingerprint: fingerprint("z"), Occurrence: 1}, "e5"},
		{"said once", talk, nil, session.User, anchor{MessageID: "?", Fingerprint: fingerprint("z"), Occurrence: 2}, "-"},
		{"nothing", talk, nil, session.User, anchor{}, "-"},
	} {
		next, err := place{c.role, c.at}.next(said(c.said...), session.Start, false, c.names)
		if err != nil {
			next = "-"
		}
		require.Equal(t, c.want, next, c.name)
	}
}
