package rpc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/protocol"
)

func TestWhatIsACommand(t *testing.T) {
	for text, want := range map[string]*command{
		"/checkpoints":       {name: "checkpoints"},
		"/checkpoints 3":     {name: "checkpoints", wrong: "3"},
		"/diff":              {name: "diff"},
		"/diff 2\n":          {name: "diff", n: 2},
		"/rewind -1 --files": {name: "rewind", n: -1, files: true},
		"/rewind --files":    {name: "rewind", files: true},
		"/rewind 0":          {name: "rewind", wrong: "0"},
		"/rewind 1 2":        {name: "rewind", n: 1, wrong: "2"},
		"/rewind the lot":    {name: "rewind", wrong: "the"},
		"/diff --files":      {name: "diff", wrong: "--files"},
		"/redo":              {name: "redo"},
		"/rewinding":         nil,
		"/ rewind":           nil,
		" /rewind":           nil,
		"/help":              nil,
		"/":                  nil,
		"":                   nil,
		"use /rewind":        nil,
	} {
		got, ok := parseCommand(protocol.Blocks{protocol.Block(`{"type":"image","data":"","mimeType":""}`), protocol.TextBlock(text), protocol.TextBlock("/redo")}, nil)
		require.Equal(t, want != nil, ok, text)
		if want != nil {
			require.Equal(t, *want, got, text)
		}
	}
}

func TestWordsForTimes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Minute: "just now", 59 * time.Second: "just now", 61 * time.Second: "1 min ago", 119 * time.Minute: "1 h ago",
		47 * time.Hour: "47 h ago", 49 * time.Hour: "2 days ago",
	} {
		require.Equal(t, want, ago(d))
	}
	require.Equal(t, "a b", shorten(" a\n\tb "))
	require.Equal(t, strings.Repeat("é", 59)+"…", shorten(strings.Repeat("é", 5000)))
}

// A patch with all its context is both of its texts.
func TestSidesOfAPatch(t *testing.T) {
	for _, c := range []struct{ patch, before, after string }{
		{"", "", ""},
		{"--- a\n+++ b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n", "one\ntwo\n", "one\n2\n"},
		{"--- a\n+++ b\n@@ -1 +1 @@\n-two\n\\ No newline at end of file\n+2\n", "two", "2\n"},
		{"--- a\n+++ b\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n\\ No newline at end of file\n", "one\ntwo", "1\ntwo"},
		{"--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+--- a\n", "", "--- a\n"},
	} {
		before, after := sides(c.patch)
		require.Equal(t, c.before, before, c.patch)
		require.Equal(t, c.after, after, c.patch)
	}
}

// A user of an editor that knows nothing of us: look, go back, and back again.
func TestCommandsWithNumbers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		for _, text := range []string{"/checkpoints", "/diff", "/rewind", "/rewind 1"} {
			require.Equal(t, noCheckpoints, words(t, d.command(text)[0]))
		}
		require.Contains(t, words(t, d.command("/redo")[0]), "no rewind to redo")
		d.put("f", "0\n")
		d.turn("one", "f", "1\n")
		<-time.After(2 * time.Minute)
		d.turn("two\nlines", "f", "2\n")

		require.Equal(t, "1 · 2 min ago · one · 1 file\n2 · just now · two lines · 1 file", words(t, d.command("/checkpoints")[0]))
		said := words(t, d.command("/diff")[0])
		require.Contains(t, said, "Since 2 · just now · two lines · 1 file:\n\n- modified $W/f (+1 −1)\n\n```diff\n")
		require.Contains(t, said, "-1\n+2\n```")
		require.Contains(t, words(t, d.command("/diff 1")[0]), "-0\n+2\n")
		require.Equal(t, "There is no checkpoint 3: /checkpoints lists those there are.", words(t, d.command("/diff 3")[0]))
		require.Equal(t, `Nothing was done: what is "all"? Usage: /rewind [NUMBER] [--files]`+"\n"+`NUMBER is that of a line of /checkpoints; -1 is the newest.`, words(t, d.command("/rewind all")[0]))

		require.Equal(t, "Rewound to 2 · just now · two lines · 1 file\nRestored (1 path):\n- $W/f\nThe conversation is back before this message:\n\ntwo\nlines",
			words(t, d.command("/rewind -1")[0]))
		require.Equal(t, "1\n", d.get("f"))
		require.Equal(t, "The rewind is undone.\nRestored (1 path):\n- $W/f", words(t, d.command("/redo")[0]))
		require.Equal(t, "2\n", d.get("f"))
		require.Equal(t, "Rewound to 1 · 2 min ago · one · 1 file\nRestored (1 path):\n- $W/f", words(t, d.command("/rewind 1 --files")[0]))
		require.Equal(t, "0\n", d.get("f"))
		entries := d.call("_oino/entries", `{"sessionId":"id1"}`)[0]
		require.Contains(t, entries, `two\nlines`) // files only: the conversation stays, and holds no command
		require.NotContains(t, entries, "/rewind")
		require.NoError(t, d.eof())
	})
}

// choose answers a menu.
func (d *desk) choose(menu, option string) {
	d.t.Helper()
	i := strings.Index(menu, `"oino-`)
	require.GreaterOrEqual(d.t, i, 0, menu)
	id := menu[i+1 : i+1+strings.IndexByte(menu[i+1:], '"')]
	d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"outcome":{"outcome":"selected","optionId":%q}}}`, id, option))
}

const rewindPrompt = `{"sessionId":"id1","prompt":[{"type":"text","text":"/rewind"}]}`

// Menus ask what the command leaves open, show what would happen before it
// does, and ask about the user's own edits only where there are any.
func TestRewindByMenu(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		d.put("f", "0\n")
		d.turn("one", "f", "1\n")
		d.turn("two", "new", "n\n")
		d.put("f", "1\nmine\n")

		d.ask("session/prompt", rewindPrompt)
		menu := d.says()
		require.Equal(t, `{"id":"oino-2","method":"session/request_permission","params":{"sessionId":"id1",`+
			`"toolCall":{"toolCallId":"oino-menu-1","status":"pending","title":"Rewind to which checkpoint?","kind":"other"},"options":[`+
			`{"optionId":"id3","name":"2 · just now · two · 1 file","kind":"allow_once"},`+
			`{"optionId":"id2","name":"1 · just now · one · 1 file","kind":"allow_once"}]}}`, menu)
		d.choose(menu, "id2")
		require.Contains(t, d.says(), `"sessionUpdate":"tool_call_update","toolCallId":"oino-menu-1","status":"completed"`)

		preview := d.says()
		require.Contains(t, preview, `"sessionUpdate":"tool_call","toolCallId":"oino-menu-3","status":"pending","title":"Rewind to 1 · just now · one · 1 file"`)
		require.Contains(t, preview, `Will be deleted (1 path):\n- $W/new\nWill be left as they are (1 path):\n- $W/f: `)
		require.Contains(t, preview, `{"type":"diff","path":"$W/new","oldText":"n\n","newText":""}`)
		require.NotContains(t, preview, `{"type":"diff","path":"$W/f"`) // left as it is, so no change to show
		menu = d.says()
		require.Contains(t, menu, `"options":[{"optionId":"files_and_conversation","name":"Files and conversation","kind":"allow_once"},`+
			`{"optionId":"files_only","name":"Files only","kind":"allow_once"},{"optionId":"cancel","name":"Cancel","kind":"reject_once"}]`)
		d.choose(menu, "files_only")
		d.says()

		menu = d.says()
		require.Contains(t, menu, `"options":[{"optionId":"keep","name":"Keep my edits","kind":"allow_once"},{"optionId":"merge","name":"Merge","kind":"allow_once"},`+
			`{"optionId":"overwrite","name":"Overwrite","kind":"allow_once"},{"optionId":"cancel","name":"Cancel","kind":"reject_once"}]`)
		d.choose(menu, "overwrite")
		d.says()
		require.Equal(t, "Rewound to 1 · just now · one · 1 file\nRestored (1 path):\n- $W/f\nDeleted (1 path):\n- $W/new", words(t, d.says()))
		require.Contains(t, d.says(), `"result":{"stopReason":"end_turn"}`)
		require.Equal(t, "0\n", d.get("f"))
		require.Equal(t, "(none)", d.get("new"))
		require.NoError(t, d.eof())
	})
}

// Nothing happens unless the user has said so to the last question.
func TestAMenuThatIsLeftChangesNothing(t *testing.T) {
	leave := map[string]func(d *desk, menu string){
		"cancelled": func(d *desk, menu string) {
			d.send(`{"jsonrpc":"2.0","id":"` + menu[strings.Index(menu, "oino-"):][:6] + `","result":{"outcome":{"outcome":"cancelled"}}}`)
		},
		"unknown choice": func(d *desk, menu string) { d.choose(menu, "something") },
		"cancel":         func(d *desk, menu string) { d.choose(menu, "cancel") },
	}
	for name, left := range leave {
		for menus := range 3 { // how many are answered before
			t.Run(fmt.Sprintf("%s after %d", name, menus), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := atDesk(t)
					d.begin()
					d.turn("one", "f", "1\n")
					d.put("f", "mine\n")
					d.ask("session/prompt", rewindPrompt)
					n := d.sent
					for i, option := range []string{"id2", "files_and_conversation"} {
						if i < menus {
							d.choose(d.toMenu(), option)
						}
					}
					left(d, d.toMenu())
					said := d.until(n)
					require.Equal(t, nothingDone, words(t, said[len(said)-2]))
					require.Equal(t, `{"result":{"stopReason":"end_turn"}}`, said[len(said)-1])
					require.Equal(t, "mine\n", d.get("f"))
					require.NoError(t, d.eof())
				})
			})
		}
	}
}

// toMenu skips to the next menu.
func (d *desk) toMenu() string {
	d.t.Helper()
	for {
		line := d.says()
		require.NotEmpty(d.t, line)
		if strings.Contains(line, `"session/request_permission"`) {
			return line
		}
	}
}

// session/cancel closes the menu and ends the turn as cancelled; what reads
// passes it meanwhile.
func TestCancelWhileAMenuIsOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		d.turn("one", "f", "1\n")
		d.ask("session/prompt", rewindPrompt)
		n := d.sent
		d.toMenu()
		require.Contains(t, d.call("_oino/checkpoints", `{"sessionId":"id1"}`)[0], `"entryId":"id2"`)
		d.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"id1"}}`)
		said := d.until(n)
		require.Equal(t, `{"method":"$/cancel_request","params":{"requestId":"oino-2"}}`, said[0])
		require.Equal(t, `{"result":{"stopReason":"cancelled"}}`, said[len(said)-1])
		require.Equal(t, "1\n", d.get("f"))
		require.NoError(t, d.eof())
	})
}

// A client without menus gets numbers, and is not asked again.
func TestAClientWithoutMenus(t *testing.T) {
	for _, code := range []int{-32601, -32602} {
		bubble(t, func(t *testing.T) {
			d := atDesk(t)
			d.begin()
			d.turn("one", "f", "1\n")
			d.ask("session/prompt", rewindPrompt)
			n := d.sent
			d.toMenu()
			d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"oino-2","error":{"code":%d,"message":"Method not found"}}`, code))
			const numbers = "Say which one: /rewind NUMBER for files and conversation, /rewind NUMBER --files for the files only.\n\n1 · just now · one · 1 file"
			said := d.until(n)
			require.Equal(t, numbers, words(t, said[0]))
			require.Equal(t, numbers, words(t, d.command("/rewind")[0]))
			require.NoError(t, d.eof())
		})
	}
}
