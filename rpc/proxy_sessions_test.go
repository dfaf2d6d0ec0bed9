package rpc

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/session"
)

// tellable is what an agent says of itself that has no way of its own to go back.
const tellable = `"protocolVersion":1,"agentCapabilities":{"promptCapabilities":{"embeddedContext":true},"sessionCapabilities":{"fork":{},"delete":{}}}`

// request is a request of the client's that is passed on, or thought over.
func (a *asked) request(id int, method, params string) {
	a.clientSays(fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, id, method, params))
	a.agentOut.flush()
}

// update is what the agent says of a session.
func (a *asked) update(session, update string) {
	a.agentSays(fmt.Appendf(nil, `{"method":"session/update","params":{"sessionId":%q,"update":%s}}`, session, update))
	a.clientOut.flush()
}

// movesOn has the conversation go on in the agent's session "n".
func (a *asked) movesOn() {
	a.t.Helper()
	a.rewinds()
	a.prompt(20, "s", "three")
	id, _ := a.hears("session/new")
	a.result(id, `{"sessionId":"n"}`)
	require.Contains(a.t, a.answers(20, "n", "three"), "answer to one")
	told(a.between.client)
}

// answered is the line that the agent has got.
func (a *asked) answered() string {
	a.t.Helper()
	select {
	case line := <-a.lines:
		return string(line)
	default:
		require.FailNow(a.t, "the agent is not answered")
		return ""
	}
}

// silent requires that the agent hears nothing.
func (a *asked) silent() {
	a.t.Helper()
	a.settle()
	select {
	case line := <-a.lines:
		require.FailNow(a.t, "the agent hears something", string(line))
	default:
	}
}

// A fork that the client asks for knows what was kept, and nothing that the
// agent's session still has.
func TestAForkAfterARewind(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.rewinds()
	told(a.between.client)
	a.request(20, "session/fork", fmt.Sprintf(`{"sessionId":"s","cwd":%q,"mcpServers":[{"name":"m"}]}`, a.wrapped("s").cwd()))
	id, params := a.hears("session/new")
	require.Contains(t, string(params), `"name":"m"`)
	a.result(id, `{"sessionId":"f","modes":{"currentModeId":"x"}}`)
	a.settle()
	require.Contains(t, told(a.between.client), `{"jsonrpc":"2.0","id":20,"result":{"modes":{"currentModeId":"x"},"sessionId":"f"}}`)
	params = json.RawMessage(a.turn(21, "f", "forked"))
	require.Contains(t, string(params), "answer to one")
	require.NotContains(t, string(params), "answer to two")
	require.Contains(t, a.turn(22, "f", "again"), `"prompt":[{"type":"text","text":"again"}]`)

	// One of which nothing was rewound is the agent's.
	a.request(23, "session/fork", fmt.Sprintf(`{"sessionId":"f","cwd":%q,"mcpServers":[]}`, a.wrapped("s").cwd()))
	a.hears("session/fork")
	a.agentSays([]byte(`{"id":23,"result":{"sessionId":"g"}}`))
	a.settle()
	require.Contains(t, a.turn(24, "g", "bare"), `"prompt":[{"type":"text","text":"bare"}]`)
}

// What the agent still says of a session in which the conversation is no more
// is not said in the one in which it is.
func TestAnAgentThatTalksInItsOldSession(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.movesOn()
	a.update("s", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"GHOST"}}`)
	a.update("s", `{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"ghost"}]}`)
	a.agentSays([]byte(`{"id":70,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"x"},"options":[]}}`))
	require.Equal(t, `{"jsonrpc":"2.0","id":70,"result":{"outcome":{"outcome":"cancelled"}}}`+"\n", a.answered())
	a.agentSays([]byte(`{"id":"w","method":"fs/write_text_file","params":{"sessionId":"s","path":"/x","content":""}}`))
	require.Contains(t, a.answered(), `"id":"w","error":{"code":-32602`)
	require.Empty(t, told(a.between.client))
	require.Equal(t, names{}, a.wrapped("s").names())
	a.update("n", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"here"}}`)
	require.Contains(t, told(a.between.client), `{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"here"}}}`)
}

// With a session go those in which its conversation was before.
func TestADeleteAfterARewind(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.movesOn()
	a.request(30, "session/delete", `{"sessionId":"s"}`)
	_, params := a.hears("session/delete")
	require.Contains(t, string(params), `"n"`)
	a.agentSays([]byte(`{"id":30,"result":{}}`))
	id, params := a.hears("session/delete")
	require.Contains(t, string(params), `"s"`)
	a.result(id, `{}`)
	a.silent()
	require.Equal(t, 1, strings.Count(told(a.between.client), "\n"), "the client's own answer")
}

// A fork by rewind is told which files were put back, as is a conversation of
// which nothing is left.
func TestWhichFilesWerePutBack(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, how := range []string{"rewind", "fork"} {
			t.Run(fmt.Sprint(how, ", to the first message ", first), func(t *testing.T) {
				a := newAskedAs(t, tellable)
				file := filepath.Join(a.wrapped("s").cwd(), "a.txt")
				a.prompt(12, "s", "three")
				a.hears("session/prompt")
				a.update("s", fmt.Sprintf(`{"sessionUpdate":"tool_call","toolCallId":"c","title":"c","kind":"edit","locations":[{"path":%q}]}`, file))
				a.held.work.Wait()
				require.NoError(t, os.WriteFile(file, nil, 0o600))
				a.agentSays([]byte(`{"id":12,"result":{"stopReason":"end_turn"}}`))
				a.settle()
				kept, err := a.session(t.Context(), "s")
				require.NoError(t, err)
				checkpoints, err := kept.Checkpoints(t.Context())
				require.NoError(t, err)
				entry := checkpoints[2].EntryID
				if first {
					entry = checkpoints[0].EntryID
				}
				told(a.between.client)
				a.request(13, "_oino/rewind", fmt.Sprintf(`{"sessionId":"s","entryId":%q,"conversation":%q}`, entry, how))
				where := "n"
				if how == "fork" {
					id, _ := a.hears("session/new")
					a.result(id, `{"sessionId":"n"}`)
					a.settle()
				} else {
					where = "s"
					a.settle()
				}
				require.NoFileExists(t, file)
				a.prompt(14, where, "four")
				if how == "rewind" {
					id, _ := a.hears("session/new")
					a.result(id, `{"sessionId":"n"}`)
				}
				params := a.answers(14, "n", "four")
				require.Equal(t, 1, strings.Count(params, "a.txt"), params)
				require.Equal(t, !first, strings.Contains(params, "answer to one"))
				require.NotContains(t, a.turn(15, where, "five"), "a.txt")
			})
		}
	}
}

// Until it is known whose a session is, what is said of it is held.
func TestUpdatesOfASessionThatNobodyKnowsYet(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.rewinds()
	a.prompt(20, "s", "three")
	ours, _ := a.hears("session/new")
	a.request(21, "session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, t.TempDir()))
	a.hears("session/new")
	told(a.between.client)
	a.update("n", `{"sessionUpdate":"available_commands_update","availableCommands":[]}`)
	for _, id := range []string{"n", "c", "x"} {
		a.update(id, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"from %s"}}`, id))
	}
	require.Empty(t, told(a.between.client))
	a.agentSays([]byte(`{"id":21,"result":{"sessionId":"c"}}`))
	a.clientOut.flush()
	got := told(a.between.client)
	require.Less(t, strings.Index(got, "from c"), strings.Index(got, `"id":21`), "as it came")
	require.Contains(t, got, "from c")
	require.NotContains(t, got, "from n")
	a.result(ours, `{"sessionId":"n"}`)
	a.answers(20, "n", "three")
	got = told(a.between.client)
	require.Contains(t, got, "from x")
	require.NotContains(t, got, "from n")
}

// A session that was made for a prompt which was called off meanwhile is
// nobody's.
func TestASessionThatIsMadeInVain(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.rewinds()
	a.prompt(20, "s", "three")
	ours, _ := a.hears("session/new")
	a.clientSays([]byte(`{"method":"session/cancel","params":{"sessionId":"s"}}`))
	a.tasks.work.Wait()
	a.clientOut.flush()
	require.Contains(t, told(a.between.client), `"stopReason":"cancelled"`)
	a.update("v", `{"sessionUpdate":"available_commands_update","availableCommands":[]}`)
	a.result(ours, `{"sessionId":"v"}`)
	a.update("v", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"GHOST"}}`)
	require.Empty(t, told(a.between.client))
	a.update("x", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"of another"}}`)
	require.Contains(t, told(a.between.client), "of another")
}

// In version 2 the end of a turn may be said before the prompt is answered.
func TestVersion2EndsBeforeTheAnswer(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		a := newAskedAs(t, `"protocolVersion":1`)
		a.proxy.client.version.Store(2)
		a.prompt(20, "s", "three")
		a.hears("session/prompt")
		a.settle()
		a.update("s", `{"sessionUpdate":"state_update","state":"running"}`)
		a.update("s", `{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`)
		a.held.work.Wait()
		if goesOn {
			a.update("s", `{"sessionUpdate":"state_update","state":"running"}`)
			a.held.work.Wait()
		}
		require.Error(t, a.wrapped("s").refuseRunning())
		a.agentSays([]byte(`{"id":20,"result":{}}`))
		a.settle()
		if goesOn {
			require.Error(t, a.wrapped("s").refuseRunning())
			a.update("s", `{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`)
			a.held.work.Wait()
		}
		require.NoError(t, a.wrapped("s").refuseRunning())
	}
}

// What an agent says of being set as its old session was is not the user's.
func TestAnAgentThatAnswersASetting(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.request(12, "session/set_mode", `{"sessionId":"s","modeId":"yolo"}`)
	a.hears("session/set_mode")
	a.agentSays([]byte(`{"id":12,"result":{}}`))
	a.rewinds()
	told(a.between.client)
	a.prompt(20, "s", "three")
	id, _ := a.hears("session/new")
	a.result(id, `{"sessionId":"n"}`)
	id, params := a.hears("session/set_mode")
	require.JSONEq(t, `{"sessionId":"n","modeId":"yolo"}`, string(params))
	a.update("n", `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"[MODE_UPDATE] yolo"}}`)
	a.result(id, `{}`)
	a.answers(20, "n", "three")
	got := told(a.between.client)
	require.NotContains(t, got, "MODE_UPDATE")
	require.Contains(t, got, "answer to three")
}

// A command of the agent's own goes bare, and what the agent has to be told with
// the next message that is none.
func TestAnAgentsCommandAfterARewind(t *testing.T) {
	a := newAskedAs(t, tellable)
	a.update("s", `{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"compact","description":"c"}]}`)
	a.rewinds()
	a.prompt(20, "s", "/compact now")
	id, _ := a.hears("session/new")
	a.result(id, `{"sessionId":"n"}`)
	require.Contains(t, a.answers(20, "n", "compact"), `"prompt":[{"type":"text","text":"/compact now"}]`)
	prompted := func(id int, text string) string {
		a.prompt(id, "s", text)
		return a.answers(id, "n", text)
	}
	require.Contains(t, prompted(21, "/compact"), `"prompt":[{"type":"text","text":"/compact"}]`)
	owed := prompted(22, "three")
	require.Contains(t, owed, "answer to one")
	require.NotContains(t, owed, "two")
	require.NotContains(t, owed, "compact", "which it has heard")
	require.Contains(t, prompted(23, "four"), `"prompt":[{"type":"text","text":"four"}]`)
}

// A message of which even the newest is too long is cut.
func TestARecapOfALongMessage(t *testing.T) {
	a := newAskedAs(t, tellable)
	kept, err := a.session(t.Context(), "s")
	require.NoError(t, err)
	_, err = kept.Append(t.Context(), []session.NewEntry{{Role: session.Assistant, Content: []byte(`"` + strings.Repeat("é", maxRecap) + ` END"`)}})
	require.NoError(t, err)
	text, err := a.recapOf(t.Context(), kept, kept.LeafID(), nil)
	require.NoError(t, err)
	require.Contains(t, text, "The beginning is left out.")
	require.True(t, strings.HasSuffix(text, "é END\n"))
	require.Less(t, len(text), maxRecap+1000)
	require.Greater(t, len(text), maxRecap-1000)
}

// No command of ours hides one of the agent's.
func TestCommandsBesideTheAgentsOwn(t *testing.T) {
	a := newAskedAs(t, tellable)
	w := a.wrapped("s")
	w.learnCommands([]byte(`[{"name":"redo"},{"name":"oino-redo"},{"name":"oino-diff"}]`))
	n := w.names()
	require.Equal(t, "oino-redo-2", n.of(cmdRedo))
	require.Equal(t, cmdRedo, n.command("oino-redo-2"))
	require.Equal(t, cmdDiff, n.command("diff"))
	require.Equal(t, cmdRewind, n.command("oino-rewind"))
	for _, agents := range []string{"redo", "oino-redo", "oino-diff"} {
		require.Empty(t, n.command(agents))
	}
	require.Contains(t, string(w.ourCommands()), `"oino-redo-2"`)
}

// The user never saw our ids.
func TestErrorsNameTheClientsSession(t *testing.T) {
	a := newAskedAs(t, tellable)
	told(a.between.client)
	a.request(20, "_oino/redo", `{"sessionId":"s"}`)
	a.prompt(21, "s", "/redo")
	a.settle()
	got := told(a.between.client)
	require.NotContains(t, got, a.wrapped("s").oursID())
	require.Equal(t, 2, strings.Count(got, "ession s has no rewind to redo"), got)
}

func TestMethodsWithoutTheConversation(t *testing.T) {
	for _, on := range []bool{true, false} {
		b := newBetween(t)
		b.config.Conversation = on
		b.clientSays([]byte(`{"id":0,"method":"initialize","params":{}}`))
		b.agentSays([]byte(`{"id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}`))
		b.settle()
		require.Equal(t, on, strings.Contains(told(b.client), `"_oino/fork"`))
	}
}
