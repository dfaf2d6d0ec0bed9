//go:build unix

package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent that can go back in its own conversation is asked to, in the way it
// offers.

// ownWay is a way of an agent's, and what it is asked then.
type ownWay struct {
	name    string
	options []string
	method  string
	anchor  string // that is in the request
}

const plainCaps = `"loadSession":true,"promptCapabilities":{"embeddedContext":true}`

var ownWays = []ownWay{
	{"air", []string{`meta={"jetbrains":{"air":{"version":1,"capabilities":["other","sessionRewind"]}}}`}, "_session/rewind", `"resumeAtMessage"`},
	{"meta", []string{`meta={"sessionRewind":{"version":1,"method":"_session/rewind"}}`, "ids=agent"}, "_session/rewind", `"beforeMessage"`},
	{"below the capabilities", []string{`caps={` + plainCaps + `,"_meta":{"sessionRewind":{"version":1,"method":"_session/rewind"}}}`, "ids=answer"}, "_session/rewind", `"beforeMessage"`},
	{"claude", []string{`caps={` + plainCaps + `,"sessionCapabilities":{"fork":{}},"_meta":{"claudeCode":{"rewind":true}}}`, "ids=agent"}, "session/fork", `"rewindTo":"msg-`},
	{"air fork", []string{`caps={` + plainCaps + `,"sessionCapabilities":{"fork":{}},"_meta":{"jetbrains":{"air":{"fork":{"version":1}}}}}`, "ids=agent"}, "session/fork", `"messageOccurrence":1`},
	{"fork at a message, which it says again", []string{`caps={` + plainCaps + `,"sessionCapabilities":{"fork":{"messageId":{}}}}`, "ids=echo"}, "session/fork", `"messageId":"msg-`},
	{"fork at a message, which its answer names", []string{`caps={` + plainCaps + `,"sessionCapabilities":{"fork":{"messageId":true}}}`, "ids=answer"}, "session/fork", `"messageId":"msg-`},
}

// talking is a wrapped agent that goes its own way, what outlives its processes,
// and all that it reads.
type talking struct {
	*box
	*process
	t       *testing.T
	s       string
	options []string
	record  string
}

func talkTo(t *testing.T, options ...string) *talking {
	b := newBox(t)
	k := &talking{box: b, t: t, record: filepath.Join(b.out, "read")}
	k.options = append([]string{"--track=files", "store=" + t.TempDir(), "record=" + k.record}, options...)
	k.start()
	k.s = k.newSession(b.work)
	return k
}

// start starts a process.
func (k *talking) start() {
	k.process = k.wrap(k.options...)
	k.initialize(nil)
}

func (k *talking) load(session string) {
	k.t.Helper()
	k.call("session/load", map[string]any{"sessionId": session, "cwd": k.work, "mcpServers": []any{}})
}

// restart is another process, which opens the session.
func (k *talking) restart() {
	k.t.Helper()
	require.Zero(k.t, k.exit())
	k.start()
	k.load(k.s)
}

// rewind rewinds the conversation and the files.
func (k *talking) rewind(n int) {
	k.t.Helper()
	k.rewindTo(k.s, n, map[string]any{"conversation": "rewind"})
}

// told is what the model knows, by a prompt that begins with lines.
func (k *talking) told(session string, lines ...string) string {
	k.t.Helper()
	from := k.heardSoFar()
	k.turn(session, append(lines, "told")...)
	return k.said(from)
}

// asked are the params of the requests that the agent got of a method.
func (k *talking) asked(method string) (all []string) {
	k.t.Helper()
	read, err := os.ReadFile(k.record)
	require.NoError(k.t, err)
	for line := range strings.Lines(string(read)) {
		var m struct {
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal([]byte(line), &m) == nil && m.Method == method {
			all = append(all, string(m.Params))
		}
	}
	return all
}

// three has three turns, of which the second changes a file.
func (k *talking) three() {
	k.t.Helper()
	k.turn(k.s, "say ONE")
	k.turn(k.s, "say TWO", "named c edit b.txt", "write b.txt two", "done c", "say so")
	k.turn(k.s, "say THREE")
}

const recapped = "The conversation so far"

func TestWrapRewindsInTheAgentsOwnWay(t *testing.T) {
	t.Parallel()
	for _, way := range ownWays {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(way.name, ", restart ", restart), func(t *testing.T) {
				t.Parallel()
				k := talkTo(t, way.options...)
				k.three()
				k.rewind(1)
				require.NoFileExists(t, k.path("b.txt"))
				require.Empty(t, k.asked(way.method), "not before it has to be")
				if restart {
					k.restart()
				}
				told := k.told(k.s)
				require.Contains(t, told, "say ONE")
				require.NotContains(t, told, "TWO")
				require.NotContains(t, told, "THREE")
				require.NotContains(t, told, recapped)
				require.Equal(t, 1, strings.Count(told, k.path("b.txt")), "it is said what was put back")
				require.True(t, strings.HasSuffix(told, "\n---\ntold"), "the user's block is the last, and unchanged: %s", told)
				require.Len(t, k.asked("session/new"), 1)
				asked := k.asked(way.method)
				require.Len(t, asked, 1)
				require.Contains(t, asked[0], way.anchor)

				// What follows goes to the same conversation, whoever asks.
				k.restart()
				require.Contains(t, k.told(k.s, "say FOUR"), "say ONE")
				listed := field[[]any](t, k.call("session/list", map[string]any{}), "sessions")
				require.Len(t, listed, 1)
				require.Equal(t, k.s, listed[0].(map[string]any)["sessionId"])

				// It can be rewound again: to the message that had words of ours.
				k.rewind(1)
				told = k.told(k.s, "say FIVE")
				require.Contains(t, told, "say ONE")
				require.NotContains(t, told, "FOUR")
				require.NotContains(t, told, k.path("b.txt"))
				require.NotContains(t, told, recapped)
				require.Len(t, k.asked(way.method), 2)
				require.Len(t, k.asked("session/new"), 1)
				require.Zero(t, k.exit())
			})
		}
	}
}

// Whatever the agent says but yes, the user gets a conversation that knows what
// was kept and nothing else.
func TestWrapWhereTheAgentRefusesToGoBack(t *testing.T) {
	t.Parallel()
	for _, way := range ownWays {
		for _, how := range []string{"false", "odd", "error"} {
			if how != "error" && way.method == "session/fork" {
				continue
			}
			t.Run(way.name+" "+how, func(t *testing.T) {
				t.Parallel()
				k := talkTo(t, append(way.options, "refuses="+how)...)
				k.three()
				k.rewind(1)
				told := k.told(k.s)
				require.Contains(t, told, recapped)
				require.Contains(t, told, "ONE")
				require.NotContains(t, told, "TWO")
				require.NotContains(t, told, "THREE")
				require.Equal(t, 1, strings.Count(told, k.path("b.txt")))
				require.Len(t, k.asked(way.method), 1)
				require.Len(t, k.asked("session/new"), 2)
				k.restart()
				require.True(t, strings.Contains(k.box.talk.String(), "did not"), "it is in the log")
				require.NotContains(t, k.told(k.s), "TWO")
			})
		}
	}
}

// An agent that ends while it goes back has perhaps done so, perhaps not.
func TestWrapWhereTheAgentEndsWhileItGoesBack(t *testing.T) {
	t.Parallel()
	for n, kept := range []string{"", "ONE"} {
		t.Run(fmt.Sprint("to message ", n), func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, append(ownWays[0].options, "refuses=exit")...)
			k.three()
			k.rewind(n)
			k.refused("session/prompt", promptParams(k.s, "told"))
			require.Equal(t, 5, k.waitExit())
			k.start()
			k.load(k.s)
			require.NotContains(t, k.said(0), "TWO")
			told := k.told(k.s)
			require.Equal(t, n > 0, strings.Contains(told, recapped))
			require.Contains(t, told, kept)
			require.NotContains(t, told, "TWO")
			require.Len(t, k.asked("_session/rewind"), 1)
			require.Empty(t, k.asked("session/load"), "that session is not used again")
		})
	}
}

// Until there is a next message the agent has forgotten nothing.
func TestWrapRedoBeforeTheAgentGoesBack(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, ownWays[0].options...)
			k.three()
			k.rewind(2)
			k.rewind(1)
			if restart {
				k.restart()
			}
			k.call("_oino/redo", map[string]any{"sessionId": k.s})
			require.Equal(t, "two\n", k.read("b.txt"))
			told := k.told(k.s)
			require.Contains(t, told, "say TWO")
			require.NotContains(t, told, "THREE", "which is still rewound")
			require.NotContains(t, told, recapped)
			require.Len(t, k.asked("_session/rewind"), 1)
		})
	}
	k := talkTo(t, ownWays[0].options...)
	k.three()
	k.rewind(1)
	k.call("_oino/redo", map[string]any{"sessionId": k.s})
	require.Contains(t, k.told(k.s), "THREE")
	require.Empty(t, k.asked("_session/rewind"))
	require.Len(t, k.asked("session/new"), 1)
}

func TestWrapRewindsTheFirstTurnInTheAgentsOwnWay(t *testing.T) {
	t.Parallel()
	for _, way := range ownWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, way.options...)
			k.three()
			k.rewind(0)
			told := k.told(k.s)
			require.NotContains(t, told, "say")
			asked, news := k.asked(way.method), k.asked("session/new")
			if strings.Contains(way.name, "claude") || way.name == "air fork" { // which need a message that stays
				require.Empty(t, asked)
				require.Len(t, news, 2)
				return
			}
			require.Len(t, asked, 1)
			require.NotContains(t, asked[0], "resumeAtMessage")
			require.Len(t, news, 1)
		})
	}
}

// The same words said more than once are told by how often, where there are no
// ids.
func TestWrapRewindsToWordsThatWereSaidBefore(t *testing.T) {
	t.Parallel()
	k := talkTo(t, ownWays[0].options...)
	k.turn(k.s, "say first")
	for range 3 {
		k.turn(k.s, "say again")
	}
	k.rewind(3)
	require.Equal(t, 3, strings.Count(k.told(k.s, "say again"), "\n---\nsay again"), "two, and the new one, which says it too")
	asked := k.asked("_session/rewind")
	require.Len(t, asked, 1)
	require.Equal(t, `"messageOccurrence":3`, at(asked[0], `"beforeMessage"`, `"messageOccurrence":3`))
	require.Equal(t, `"messageOccurrence":2`, at(asked[0], `"resumeAtMessage"`, `"messageOccurrence":2`))
	k.rewind(2)
	require.Equal(t, 1, strings.Count(k.told(k.s), "\n---\nsay again"))
	require.Len(t, k.asked("_session/rewind"), 2)
	require.Len(t, k.asked("session/new"), 1)
}

// at is what, if it stands in text behind a word and before the end of the
// object there.
func at(text, word, what string) string {
	_, behind, _ := strings.Cut(text, word)
	object, _, _ := strings.Cut(behind, "}")
	if strings.Contains(object, what) {
		return what
	}
	return object
}

// A message that the agent answered with an error it may not have: what says
// the same cannot be told by how often.
func TestWrapRewindsAroundAnError(t *testing.T) {
	t.Parallel()
	k := talkTo(t, ownWays[0].options...)
	k.turn(k.s, "say ONE")
	k.refused("session/prompt", promptParams(k.s, "fail"))
	k.turn(k.s, "say TWO")
	k.turn(k.s, "say THREE")
	k.rewind(3) // what is before does not matter
	require.NotContains(t, k.told(k.s, "say FOUR"), "THREE")
	require.Len(t, k.asked("_session/rewind"), 1)
	require.Len(t, k.asked("session/new"), 1)
	k.rewind(1) // this one cannot be told
	told := k.told(k.s)
	require.Contains(t, told, recapped)
	require.NotContains(t, told, "TWO")
	require.Len(t, k.asked("_session/rewind"), 1)
	require.Len(t, k.asked("session/new"), 2)
}

// In a session that was told what was kept only what was said since can be gone
// back to; what was said before is counted no more.
func TestWrapRewindsASessionThatWasSeeded(t *testing.T) {
	t.Parallel()
	for _, way := range []ownWay{ownWays[0], ownWays[6]} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(way.name, ", restart ", restart), func(t *testing.T) {
				t.Parallel()
				again := func(k *talking) {
					if restart {
						k.restart()
					}
				}
				k := talkTo(t, way.options...)
				k.turn(k.s, "say SAME")
				k.refused("session/prompt", promptParams(k.s, "fail"))
				k.rewind(1)
				require.Contains(t, k.told(k.s, "say SEEDED"), recapped)
				k.turn(k.s, "say SAME")
				again(k)
				k.turn(k.s, "say SAME")
				k.rewind(3)
				again(k)
				told := k.told(k.s, "say MORE")
				require.Equal(t, 1, strings.Count(told, recapped))
				require.Equal(t, 1, strings.Count(told, "\n---\nsay SAME"))
				asked := k.asked(way.method)
				require.Len(t, asked, 1)
				if way.method == "_session/rewind" {
					require.Contains(t, asked[0], `"messageOccurrence":2`)
				}
				require.Len(t, k.asked("session/new"), 2)

				// Before the first of them there is nothing that the agent could go back to.
				k.rewind(1)
				told = k.told(k.s)
				require.NotContains(t, told, "SEEDED")
				require.Contains(t, told, "SAME")
				require.Len(t, k.asked(way.method), 1)
				require.Len(t, k.asked("session/new"), 3)
			})
		}
	}
}

// A fork is the agent's own too. Its source stays as it is.
func TestWrapForksInTheAgentsOwnWay(t *testing.T) {
	t.Parallel()
	for _, way := range ownWays {
		for _, refuses := range []bool{false, true} {
			t.Run(fmt.Sprint(way.name, ", refused ", refuses), func(t *testing.T) {
				t.Parallel()
				options := way.options
				if refuses {
					options = append(options, "refuses=error")
				}
				k := talkTo(t, options...)
				k.three()
				forks := way.method == "session/fork"
				fork := field[string](t, k.rewindTo(k.s, 1, map[string]any{"conversation": "fork"}), "sessionId")
				own := forks && !refuses
				if forks {
					require.Len(t, k.asked("session/fork"), 1)
				} else {
					require.Empty(t, k.asked("_session/rewind"), "which would change the source")
				}
				if own {
					require.Contains(t, k.asked("session/fork")[0], way.anchor)
					require.Len(t, k.asked("session/new"), 1)
				} else {
					require.Len(t, k.asked("session/new"), 2)
				}
				told := k.told(fork, "say FORKED")
				require.Contains(t, told, "ONE")
				require.NotContains(t, told, "TWO")
				require.Equal(t, !own, strings.Contains(told, recapped))
				told = k.told(k.s)
				require.Contains(t, told, "THREE")
				require.NotContains(t, told, "FORKED")
				require.NotContains(t, told, recapped)

				// And a fork of the fork, in another process.
				require.Zero(t, k.exit())
				k.start()
				k.load(fork)
				k.turn(fork, "say LAST")
				second := field[string](t, k.call("_oino/fork", map[string]any{"sessionId": fork, "entryId": k.userEntry(fork, 2)}), "sessionId")
				told = k.told(second)
				require.Contains(t, told, "FORKED")
				require.NotContains(t, told, "LAST")
				if own {
					require.Len(t, k.asked("session/fork"), 2)
					require.Len(t, k.asked("session/new"), 1)
				}
			})
		}
	}
}

// A whole fork, ours or the client's own, is the agent's conversation with all
// its messages. It can be gone back in without any ids.
func TestWrapRewindsAForkInTheAgentsOwnWay(t *testing.T) {
	t.Parallel()
	for _, fork := range []string{"_oino/fork", "session/fork"} {
		t.Run(fork, func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, ownWays[0].options...)
			k.three()
			k.s = field[string](t, k.call(fork, map[string]any{"sessionId": k.s, "cwd": k.work, "mcpServers": []any{}}), "sessionId")
			k.rewind(1)
			told := k.told(k.s)
			require.Contains(t, told, "ONE")
			require.NotContains(t, told, "TWO")
			require.NotContains(t, told, recapped)
			asked := k.asked("_session/rewind")
			require.Len(t, asked, 1)
			require.Contains(t, asked[0], k.s)
			require.Len(t, k.asked("session/new"), 1)
		})
	}
}

// userEntry is the id of the n-th of the user's messages.
func (p *process) userEntry(session string, n int) string {
	p.t.Helper()
	for _, e := range field[[]any](p.t, p.call("_oino/entries", map[string]any{"sessionId": session}), "entries") {
		e := e.(map[string]any)
		if e["role"] != "user" {
			continue
		}
		if n--; n < 0 {
			return e["id"].(string)
		}
	}
	require.FailNow(p.t, "no such message")
	return ""
}

// Of a session that had a history before we saw it nobody has counted the
// messages; where they have ids, that does not matter.
func TestWrapRewindsASessionWithAHistory(t *testing.T) {
	t.Parallel()
	for _, ids := range []string{"", "answer"} {
		t.Run("ids "+ids, func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, ownWays[0].options[0], "ids="+ids)
			k.turn(k.s, "say BEFORE")
			require.Zero(t, k.exit())
			require.NoError(t, os.RemoveAll(k.agent))
			k.start()
			k.load(k.s)
			k.turn(k.s, "say ONE")
			k.turn(k.s, "say TWO")
			k.rewind(1)
			told := k.told(k.s)
			require.Contains(t, told, "ONE")
			require.NotContains(t, told, "TWO")
			require.Equal(t, ids != "", strings.Contains(told, "BEFORE"))
			asked := len(k.asked("_session/rewind"))
			require.Equal(t, map[string]int{"": 0, "answer": 1}[ids], asked)
			k.rewind(0) // before which nobody knows what the agent said
			require.NotContains(t, k.told(k.s), "ONE")
			require.Len(t, k.asked("_session/rewind"), asked)
		})
	}
}

// Ids that an agent finds anew when it opens a session are the ones that count.
func TestWrapRewindsByTheIDsOfAReplay(t *testing.T) {
	t.Parallel()
	k := talkTo(t, ownWays[5].options[0], "ids=replay")
	k.turn(k.s, "say SAME")
	k.turn(k.s, "say SAME")
	k.turn(k.s, "say THREE")
	k.restart()
	k.restart()
	k.rewind(1)
	told := k.told(k.s)
	require.Equal(t, 1, strings.Count(told, "say SAME"))
	require.NotContains(t, told, recapped)
	require.Len(t, k.asked("session/fork"), 1)
	require.Len(t, k.asked("session/new"), 1)
}

func TestWrapVersion2RewindsInTheAgentsOwnWay(t *testing.T) {
	t.Parallel()
	for _, way := range []ownWay{
		{"rewind", []string{"v2", ownWays[0].options[0]}, "_session/rewind", "resumeAtMessage"},
		{"fork", []string{"v2", `caps={"session":{"prompt":{"embeddedContext":{}},"fork":{"messageId":{}}}}`, "ids=echo"}, "session/fork", "messageId"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			record := filepath.Join(b.out, "read")
			k := &talking{box: b, t: t, record: record}
			k.process = b.wrap(append([]string{"--track=files", "record=" + record}, way.options...)...)
			k.call("initialize", map[string]any{"protocolVersion": 2, "info": map[string]any{"name": "t", "version": "0"}, "capabilities": map[string]any{}})
			k.s = k.newSession(b.work)
			turn := func(lines ...string) string {
				from := k.heardSoFar()
				k.turn(k.s, lines...)
				_, _, err := k.await(func(_ int, m message) bool { return strings.Contains(string(m.Params), `"idle"`) }, "", from)
				require.NoError(t, err)
				return k.said(from)
			}
			turn("say ONE")
			turn("say TWO")
			k.rewind(1)
			told := turn("told")
			require.Contains(t, told, "ONE")
			require.NotContains(t, told, "TWO")
			require.NotContains(t, told, recapped)
			asked := k.asked(way.method)
			require.Len(t, asked, 1)
			require.Contains(t, asked[0], way.anchor)
		})
	}
}

// An agent that lives on oinod serve is told by our own name for the place.
func TestWrapRewindsAnAgentOnServe(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	b := newBox(t)
	record, store := filepath.Join(b.out, "read"), filepath.Join(b.root, "agents-own")
	k := &talking{box: b, t: t, record: record}
	k.process = b.start("wrap", "--track=files", "--", "sh", "-c", `tee "$0" | "$1" serve --agent-dir "$2"`, record, bin, store)
	k.initialize(nil)
	k.s = k.newSession(b.work)
	for _, text := range []string{"first", "second", "third"} {
		k.turn(k.s, text)
	}
	k.call("_oino/rewind", map[string]any{"sessionId": k.s, "entryId": k.userEntry(k.s, 1), "conversation": "rewind"})
	k.turn(k.s, "another")
	asked := k.asked("session/fork")
	require.Len(t, asked, 1)
	require.Contains(t, asked[0], `"position":"before"`)
	require.Len(t, k.asked("session/new"), 1)
	prompts := k.asked("session/prompt")
	fork := field[string](t, json.RawMessage(prompts[len(prompts)-1]), "sessionId")
	require.NotEqual(t, k.s, fork)
	require.Zero(t, k.exit())

	p := b.start("serve", "--agent-dir", store)
	entries := string(p.call("_oino/entries", map[string]any{"sessionId": fork}))
	require.Contains(t, entries, "first")
	require.Contains(t, entries, "another")
	require.NotContains(t, entries, "second")
}

// point names a message of either side as a client does that has its own ids.
func point(text string) map[string]any {
	return map[string]any{"messageId": "mine", "messageFingerprint": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))), "messageOccurrence": 1}
}

// kept is the conversation as the log has it.
func (k *talking) kept(session string) string {
	k.t.Helper()
	return string(k.call("_oino/entries", map[string]any{"sessionId": session}))
}

// A client may have the agent go back without us. The log follows, and the files
// of what was left can still be rewound.
func TestWrapFollowsAClientThatRewindsTheAgentItself(t *testing.T) {
	t.Parallel()
	two := "say TWO\nnamed c edit b.txt\nwrite b.txt two\ndone c\nsay so"
	for _, tracking := range []string{"--track=files", "--track=workspace"} {
		t.Run(tracking, func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, append(ownWays[1].options, tracking, "caps={"+plainCaps+"}")...)
			k.three()
			rewind := map[string]any{"sessionId": k.s, "beforeMessage": point(two), "resumeAtMessage": point("ONE")}
			require.True(t, field[bool](t, k.call("_session/rewind", rewind), "rewound"))
			require.Contains(t, k.kept(k.s), "ONE")
			require.NotContains(t, k.kept(k.s), "TWO")
			require.Len(t, k.entries(k.s), 1)
			require.Equal(t, "two\n", k.read("b.txt"))

			fork := field[string](t, k.call("_oino/fork", map[string]any{"sessionId": k.s}), "sessionId")
			told := k.told(fork)
			require.Contains(t, told, recapped)
			require.Contains(t, told, "ONE")
			require.NotContains(t, told, "TWO")

			k.restart()
			told = k.told(k.s, "say FOUR")
			require.Contains(t, told, "say ONE")
			require.NotContains(t, told, "TWO")
			require.NotContains(t, told, recapped)
			require.Len(t, k.asked("_session/rewind"), 1, "the client's own")
			k.rewind(1)
			require.Contains(t, k.told(k.s, "say FIVE"), "say ONE")
			require.Len(t, k.asked("_session/rewind"), 2)
			k.rewind(0)
			require.NoFileExists(t, k.path("b.txt"))
			require.Zero(t, k.exit())
		})
	}
}

// What the agent did not do, or where to nobody knows, changes nothing.
func TestWrapStaysWhereTheAgentDidNotGoBack(t *testing.T) {
	t.Parallel()
	k := talkTo(t, append(ownWays[1].options, "refuses=false")...)
	k.three()
	for _, text := range []string{"say THREE", "never said"} {
		rewind := map[string]any{"sessionId": k.s, "beforeMessage": point(text), "resumeAtMessage": point("TWO")}
		require.False(t, field[bool](t, k.call("_session/rewind", rewind), "rewound"))
	}
	require.Contains(t, k.kept(k.s), "THREE")
	require.Contains(t, k.told(k.s), "THREE")
	require.Zero(t, k.exit())
}

// A client may have the agent fork at a message without us: the fork has what
// comes before.
func TestWrapFollowsAClientThatForksTheAgentAtAMessage(t *testing.T) {
	t.Parallel()
	for _, way := range ownWays[3:] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, way.options...)
			from := k.heardSoFar()
			k.turn(k.s, "say ONE")
			m, _, err := k.await(func(_ int, m message) bool { return bytes.Contains(m.Params, []byte(`"ONE"`)) }, "", from)
			require.NoError(t, err)
			from = k.heardSoFar()
			two := k.turn(k.s, "say TWO", "named c edit b.txt", "write b.txt two", "done c")
			params := map[string]any{"sessionId": k.s, "cwd": k.work, "mcpServers": []any{}}
			switch {
			case strings.Contains(way.anchor, "rewindTo"):
				params["_meta"] = map[string]any{"claudeCode": map[string]any{"rewindTo": field[string](t, m.Params, "update", "messageId")}}
			case strings.Contains(way.name, "air"):
				at := point("ONE")
				at["version"] = 1
				params["_meta"] = map[string]any{"jetbrains": map[string]any{"air": map[string]any{"fork": at}}}
			case strings.Contains(way.name, "says again"):
				m, _, err := k.await(func(_ int, m message) bool { return bytes.Contains(m.Params, []byte(`user_message_chunk`)) }, "", from)
				require.NoError(t, err)
				params["messageId"] = field[string](t, m.Params, "update", "messageId")
			default:
				params["messageId"] = field[string](t, two, "userMessageId")
			}
			fork := field[string](t, k.call("session/fork", params), "sessionId")
			require.Contains(t, k.kept(fork), "ONE")
			require.NotContains(t, k.kept(fork), "TWO")
			require.Len(t, k.entries(fork), 1)
			require.Contains(t, k.kept(k.s), "TWO")
			told := k.told(fork, "say FOUR")
			require.Contains(t, told, "say ONE")
			require.NotContains(t, told, "TWO")
			require.NotContains(t, told, recapped)
			require.Len(t, k.asked("session/fork"), 1)
			require.Zero(t, k.exit())
		})
	}
}

// So it is where the fork is ours to make.
func TestWrapForksAtAMessageAfterTheClientHasRewound(t *testing.T) {
	t.Parallel()
	k := talkTo(t, ownWays[1].options[0], ownWays[6].options[0], ownWays[6].options[1])
	k.turn(k.s, "say ONE")
	two := field[string](t, k.turn(k.s, "say TWO"), "userMessageId")
	k.turn(k.s, "say THREE")
	k.call("_session/rewind", map[string]any{"sessionId": k.s, "beforeMessage": point("say THREE"), "resumeAtMessage": point("TWO")})
	params := map[string]any{"sessionId": k.s, "cwd": k.work, "mcpServers": []any{}, "messageId": two}
	fork := field[string](t, k.call("session/fork", params), "sessionId")
	require.NotContains(t, k.kept(fork), "TWO")
	told := k.told(fork)
	require.Contains(t, told, "say ONE")
	require.NotContains(t, told, "TWO")
	require.Contains(t, k.told(k.s), "TWO")
	require.Zero(t, k.exit())
}

// The place of such a fork is none of a fork of the fork.
func TestWrapForksAForkAsAWhole(t *testing.T) {
	t.Parallel()
	for _, way := range ownWays[3:5] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			k := talkTo(t, way.options...)
			from := k.heardSoFar()
			k.turn(k.s, "say ONE")
			m, _, err := k.await(func(_ int, m message) bool { return bytes.Contains(m.Params, []byte(`"ONE"`)) }, "", from)
			require.NoError(t, err)
			k.turn(k.s, "say TWO")
			at := point("ONE")
			at["version"] = 1
			params := map[string]any{"sessionId": k.s, "cwd": k.work, "mcpServers": []any{}, "_meta": map[string]any{"other": map[string]any{"x": 1}}}
			if way.name == "claude" {
				params["_meta"].(map[string]any)["claudeCode"] = map[string]any{"rewindTo": field[string](t, m.Params, "update", "messageId"), "y": 2}
			} else {
				params["_meta"].(map[string]any)["jetbrains"] = map[string]any{"air": map[string]any{"fork": at}, "y": 2}
			}
			fork := field[string](t, k.call("session/fork", params), "sessionId")
			k.turn(fork, "say FOUR")
			again := field[string](t, k.call("_oino/fork", map[string]any{"sessionId": fork}), "sessionId")
			require.Contains(t, k.kept(again), "FOUR")
			require.Contains(t, k.told(again), "FOUR")
			asked := k.asked("session/fork")
			require.Len(t, asked, 2)
			require.NotContains(t, asked[1], "rewindTo")
			require.NotContains(t, asked[1], `"fork"`)
			require.Contains(t, asked[1], `"x":1`, "all else is as the client has set it up")
			require.Contains(t, asked[1], `"y":2`)
			require.Zero(t, k.exit())
		})
	}
}
