package rpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInitializeSaysWhatIsServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.do("initialize", `{"protocolVersion":7,"clientCapabilities":{"fs":{"readTextFile":true}}}`,
			`{"protocolVersion":1,"agentInfo":{"name":"oinod","version":"1.2.3"},"agentCapabilities":{"loadSession":true,`+
				`"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},`+
				`"sessionCapabilities":{"list":{},"resume":{},"close":{},"delete":{},"fork":{},"additionalDirectories":{}},`+
				`"_meta":{"oino":{"version":1,"methods":["_oino/append","_oino/checkpoints","_oino/diff","_oino/edit","_oino/entries",`+
				`"_oino/fork","_oino/label","_oino/record","_oino/redo","_oino/rewind","_oino/state/get","_oino/state/put","_oino/stats",`+
				`"_oino/title","_oino/turn_end","_oino/write"],"tracking":["files"],`+
				`"limits":{"maxCheckpoints":100,"maxSnapshotBytes":16777216,"maxMessageBytes":67108864}}}},"authMethods":[]}`)
		require.NoError(t, d.eof())
	})
}

// A message is echoed with its entry's id before its prompt is answered; the
// commands are announced when the client can know the session.
func TestAPromptIsEchoedBlockByBlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		require.Equal(t, []string{`{"result":{"sessionId":"id1","_meta":{"oino":{"tracking":"files"}}}}`}, d.call("session/new", `{"cwd":"$W","mcpServers":[]}`))
		require.Equal(t, `{"method":"session/update","params":{"sessionId":"id1","update":{"sessionUpdate":"available_commands_update","availableCommands":[`+
			`{"name":"checkpoints","description":"List what can be rewound to"},`+
			`{"name":"diff","description":"Show what changed since a checkpoint (the newest one without a number)","input":{"hint":"number of the checkpoint"}},`+
			`{"name":"rewind","description":"Bring files (and the conversation) back to a checkpoint","input":{"hint":"number of the checkpoint, --files for the files only"}},`+
			`{"name":"redo","description":"Undo the last rewind"}]}}}`, d.says())
		require.Equal(t, []string{
			`{"method":"session/update","params":{"sessionId":"id1","update":{"sessionUpdate":"user_message_chunk","messageId":"id2","content":{"type":"text","text":"a <b>"}}}}`,
			`{"method":"session/update","params":{"sessionId":"id1","update":{"sessionUpdate":"user_message_chunk","messageId":"id2","content":{"type":"image","data":"AA==","mimeType":"image/png","x":1.50}}}}`,
			`{"result":{"stopReason":"end_turn","_meta":{"oino":{"entryId":"id2","turnOpen":true}}}}`,
		}, d.call("session/prompt", `{"sessionId":"id1","prompt":[{"type":"text","text":"a <b>"},{"type":"image","data":"AA==","mimeType":"image/png","x":1.50}]}`))
		require.NoError(t, d.eof())
	})
}

// A loaded session looks as it did: each entry with its id, what was meant to
// be shown, tool calls once and then as updates, one that was cut off as it is.
func TestLoadReplaysTheConversation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		d.do("_oino/append", `{"sessionId":"id1","entries":[
			{"id":"u","role":"user","content":"for the model","displayContent":"for the eye"},
			{"id":"a","role":"assistant","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},
			{"id":"t1","role":"tool","toolCallId":"c","status":"in_progress","title":"Edit","kind":"edit","locations":[{"path":"/p"}],"rawInput":{"z":1,"a":2}},
			{"id":"t2","role":"tool","toolCallId":"c","status":"completed","content":[{"type":"text","text":"out"},{"type":"diff","path":"/p","newText":"n"}]},
			{"id":"x","role":"custom","content":"between driver and model"},
			{"id":"y","role":"custom","content":"","displayContent":"shown"},
			{"id":"s","role":"compaction","summary":"what went before","keepFrom":"a","tokensBefore":9},
			{"id":"t3","role":"tool","toolCallId":"e"},
			{"id":"cut","role":"tool","toolCallId":"d","status":"pending"}]}`,
			`{"entryIds":["u","a","t1","t2","x","y","s","t3","cut"]}`)
		d.do("session/close", `{"sessionId":"id1"}`, `{}`)
		update := func(body string) string {
			return `{"method":"session/update","params":{"sessionId":"id1","update":{"sessionUpdate":` + body + `}}}`
		}
		said := d.call("session/load", `{"sessionId":"id1","cwd":"$W","mcpServers":[]}`)
		require.Equal(t, []string{
			update(`"user_message_chunk","messageId":"u","content":{"type":"text","text":"for the eye"}`),
			update(`"agent_message_chunk","messageId":"a","content":{"type":"text","text":"one"}`),
			update(`"agent_message_chunk","messageId":"a","content":{"type":"text","text":"two"}`),
			update(`"tool_call","toolCallId":"c","status":"in_progress","title":"Edit","kind":"edit","locations":[{"path":"/p"}],"rawInput":{"z":1,"a":2}`),
			update(`"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"content","content":{"type":"text","text":"out"}},{"type":"diff","path":"/p","newText":"n"}]`),
			update(`"agent_message_chunk","messageId":"y","content":{"type":"text","text":"shown"}`),
			update(`"agent_message_chunk","messageId":"s","content":{"type":"text","text":"what went before"}`),
			update(`"tool_call","toolCallId":"e","status":"completed","title":"e"`),
			update(`"tool_call","toolCallId":"d","status":"pending","title":"d"`),
		}, said[:len(said)-2])
		require.Contains(t, said[len(said)-2], "available_commands_update")
		require.Equal(t, `{"result":{}}`, said[len(said)-1])

		said = d.call("session/resume", `{"sessionId":"id1","cwd":"$W"}`)
		require.Len(t, said, 2) // the commands alone
		require.NoError(t, d.eof())
	})
}

// Entries carry what they were appended with, and lists are never null.
func TestEntriesOnTheWire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		d.do("_oino/entries", `{"sessionId":"id1"}`, `{"entries":[],"leafId":null,"revision":1,"more":false}`)
		d.do("_oino/append", `{"sessionId":"id1","entries":[{"id":"u","role":"user","content":"hi"},
			{"id":"t","role":"tool","toolCallId":"c","status":"completed","title":"T","rawOutput":[1]}]}`, `{"entryIds":["u","t"]}`)
		const entries = `{"entries":[{"id":"u","parentId":null,"role":"user","createdAt":946684800000,"content":[{"type":"text","text":"hi"}]},` +
			`{"id":"t","parentId":"u","role":"tool","createdAt":946684800000,"content":[],"toolCallId":"c","status":"completed","title":"T","rawOutput":[1]}],"leafId":"t",`
		said := d.call("_oino/entries", `{"sessionId":"id1"}`)
		require.True(t, strings.HasPrefix(said[0], `{"result":`+entries), said[0])
		said = d.call("_oino/entries", `{"sessionId":"id1","limit":1,"context":true}`)
		require.Contains(t, said[0], `"more":true`)
		require.NotContains(t, said[0], `"id":"t"`)

		d.do("_oino/state/put", `{"sessionId":"id1","entryId":"u","state":{"z":1,"a":[1.50,null]}}`, `{"entryId":"u"}`)
		d.do("_oino/state/get", `{"sessionId":"id1"}`, `{"entryId":"u","state":{"z":1,"a":[1.50,null]}}`)
		d.do("_oino/label", `{"sessionId":"id1","entryId":"u","label":"here"}`, `{}`)
		require.Equal(t, []string{
			`{"method":"session/update","params":{"sessionId":"id1","update":{"sessionUpdate":"session_info_update","title":"A <title>"}}}`,
			`{"result":{}}`,
		}, d.call("_oino/title", `{"sessionId":"id1","title":"A <title>"}`))
		require.Contains(t, d.call("_oino/title", `{"sessionId":"id1","title":null}`)[0], `"title":"hi"`)
		require.NoError(t, d.eof())
	})
}

// A list says when and how much; what is wrong is said with a code.
func TestSessionsAreListedAndRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.do("session/list", `{}`, `{"sessions":[]}`)
		d.begin()
		d.call("session/prompt", `{"sessionId":"id1","prompt":[{"type":"text","text":"make  it\n work"}]}`)
		d.do("session/list", `{"cwd":null}`, `{"sessions":[{"sessionId":"id1","cwd":"$W","title":"make it work","updatedAt":"2000-01-01T00:00:00.000Z",`+
			`"_meta":{"oino":{"createdAt":946684800000,"entries":1,"lastUserMessage":"make it work"}}}]}`)
		d.put("f", "abc")
		for _, c := range []struct{ method, params, want string }{
			{"session/new", `{"cwd":"relative"}`, `"code":-32602`},
			{"session/new", `{"cwd":"$W/none"}`, `"code":-32602`},
			{"session/new", `{"cwd":"$W","_meta":{"oino":{"tracking":"workspace","persist":false}}}`, `"kind":"tracking_unavailable"`},
			{"session/new", `{"cwd":"$W","_meta":{"oino":{"tracking":"magic"}}}`, `"code":-32602,"message":"there is no tracking \"magic\"; use \"files\" or \"workspace\"","data":{"kind":"tracking_unavailable"}`},
			{"session/new", `{"cwd":"$W","_meta":{"oino":{"tracking":""}}}`, `"kind":"tracking_unavailable"`},
			{"session/new", `{"cwd":"$W","_meta":{"oino":{"tracking":7}}}`, `"_meta.oino.tracking must be a string, not a number"`},
			{"_oino/append", `{"sessionId":"id1","entries":[{"role":"custom","content":"","id":""}]}`, `"code":-32602`},
			{"_oino/checkpoints", `{"sessionid":"id1"}`, `sessionId is missing`},
			{"session/load", `{"sessionId":"id1","cwd":"/"}`, `"code":-32602`},
			{"session/load", `{"sessionId":"no-such","cwd":"$W"}`, `"kind":"session_not_found"`},
			{"session/fork", `{"sessionId":"id1","cwd":"/"}`, `and so does a fork of it`},
			{"session/delete", `{"sessionId":"../../etc"}`, `"code":-32002`},
			{"_oino/checkpoints", `{"sessionId":"no-such"}`, `"code":-32002`},
			{"_oino/checkpoints", `{"sessionId":5}`, `"message":"sessionId must be a string, not a number"`},
			{"_oino/checkpoints", `[]`, `"message":"params must be an object"`},
			{"_oino/rewind", `{"sessionId":"id1","entryId":"nope"}`, `"kind":"entry_not_found"`},
			{"_oino/redo", `{"sessionId":"id1"}`, `"kind":"nothing_to_redo"`},
			{"_oino/state/get", `{"sessionId":"id1"}`, `"kind":"state_not_found"`},
			{"_oino/write", `{"sessionId":"id1","path":"/etc/x","content":""}`, `"kind":"outside_roots"`},
			{"_oino/edit", `{"sessionId":"id1","path":"$W/f","edits":[{"oldText":"z","newText":"b"}]}`, `"kind":"edit_no_match"`},
		} {
			said := d.call(c.method, c.params)
			require.Len(t, said, 1)
			require.Contains(t, said[0], c.want, "%s %s", c.method, c.params)
		}
		d.do("session/delete", `{"sessionId":"id1"}`, `{}`)
		d.do("session/list", `{}`, `{"sessions":[]}`)
		require.NoError(t, d.eof())
	})
}

// An event goes to a client that asked for events, and to no other.
func TestEventsAreForThoseWhoAsk(t *testing.T) {
	for _, wants := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			d := atDesk(t)
			if wants {
				d.call("initialize", `{"protocolVersion":1,"clientCapabilities":{"_meta":{"oino":{"events":true}}}}`)
			}
			d.begin()
			d.turn("one", "f", "1\n")
			said := strings.Join(d.call("_oino/rewind", `{"sessionId":"id1","entryId":"id2"}`), "\n")
			require.Equal(t, wants, strings.Contains(said, `"method":"_oino/event"`), said)
			require.NoError(t, d.eof())
		})
	}
}
