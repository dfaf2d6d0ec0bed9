package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/session"
)

// desk is a client of the real Serve, with a workspace. Ids are given out in
// order, id1 and so on; $W stands for the workspace.
type desk struct {
	*talk
	w    string
	sent int
}

// Handlers have a say in forks.
func atDesk(t *testing.T, handlers ...fork.Handler) *desk {
	t.Helper()
	w, agentDir := t.TempDir(), t.TempDir()
	k := dial(t, func(ctx context.Context, in io.Reader, out io.Writer) error {
		events, n := new(Events), 0
		registry, err := session.OpenRegistry(session.Options{
			Dir: agentDir, Limits: session.DefaultLimits, App: "test", Event: events.Send,
			NewID: func() string { n++; return fmt.Sprintf("id%d", n) },
		})
		if err != nil {
			return err
		}
		defer func() { _ = registry.Shutdown(context.Background()) }()
		return Serve(ctx, Config{
			In: in, Out: out, Registry: registry, Forker: fork.New(registry, handlers...), Events: events,
			Log: zerolog.Nop(), Version: "1.2.3", Limits: session.DefaultLimits,
		})
	})
	return &desk{talk: k, w: w}
}

// ask sends a request and does not wait for its answer.
func (d *desk) ask(method, params string) {
	d.t.Helper()
	d.sent++
	params = strings.NewReplacer("$W", d.w, "\n", "", "\t", "").Replace(params)
	d.send(req(fmt.Sprint(d.sent), method, params))
}

// says is the next line with what varies taken out: who speaks, and where.
func (d *desk) says() string {
	d.t.Helper()
	line := strings.ReplaceAll(d.next(), d.w, "$W")
	line = strings.TrimPrefix(line, `{"jsonrpc":"2.0",`)
	if line == "" {
		return ""
	}
	return "{" + line
}

// call sends a request and returns all that is said until its answer, which is
// the last.
func (d *desk) call(method, params string) []string {
	d.t.Helper()
	d.ask(method, params)
	return d.until(d.sent)
}

// until is all that is said until the answer to request n.
func (d *desk) until(n int) []string {
	d.t.Helper()
	var said []string
	for {
		line := d.says()
		require.NotEmpty(d.t, line, "no answer; before: %v", said)
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf(`{"id":%d,`, n)); ok {
			return append(said, "{"+rest)
		}
		said = append(said, line)
	}
}

// do is a call whose answer must be result, with nothing else said.
func (d *desk) do(method, params, result string) {
	d.t.Helper()
	require.Equal(d.t, []string{`{"result":` + result + `}`}, d.call(method, params))
}

// begin makes a session, id1, and skips the announcement of commands.
func (d *desk) begin() {
	d.t.Helper()
	d.do("session/new", `{"cwd":"$W","mcpServers":[]}`, `{"sessionId":"id1","_meta":{"oino":{"tracking":"files"}}}`)
	require.Contains(d.t, d.says(), "available_commands_update")
}

// turn is one message of the user after which one file is written.
func (d *desk) turn(text, file, content string) {
	d.t.Helper()
	d.call("session/prompt", fmt.Sprintf(`{"sessionId":"id1","prompt":[{"type":"text","text":%q}]}`, text))
	d.call("_oino/write", fmt.Sprintf(`{"sessionId":"id1","path":"$W/%s","content":%q}`, file, content))
}

// command types a slash command and returns what is said of it, without the
// answer, which ends the turn.
func (d *desk) command(text string) []string {
	d.t.Helper()
	said := d.call("session/prompt", fmt.Sprintf(`{"sessionId":"id1","prompt":[{"type":"text","text":%q}]}`, text))
	require.Equal(d.t, `{"result":{"stopReason":"end_turn"}}`, said[len(said)-1])
	return said[:len(said)-1]
}

// words is the text of an agent_message_chunk.
func words(t *testing.T, line string) string {
	t.Helper()
	var m struct {
		Params struct {
			Update struct {
				SessionUpdate string
				Content       struct{ Text string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(line), &m))
	require.Equal(t, "agent_message_chunk", m.Params.Update.SessionUpdate, line)
	return m.Params.Update.Content.Text
}

func (d *desk) put(file, content string) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(filepath.Join(d.w, file), []byte(content), 0o644))
}

func (d *desk) get(file string) string {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.w, file))
	if os.IsNotExist(err) {
		return "(none)"
	}
	require.NoError(d.t, err)
	return string(b)
}
