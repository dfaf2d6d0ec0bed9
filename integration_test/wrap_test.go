//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wrap starts an oinod before a scripted agent. Among the options, those of
// oinod begin with "--".
func (b *box) wrap(options ...string) *process {
	b.t.Helper()
	args := []string{"wrap"}
	var agent []string
	for _, o := range options {
		if strings.HasPrefix(o, "--") {
			args = append(args, o)
		} else {
			agent = append(agent, o)
		}
	}
	args = append(append(args, "--"), fakeCommand(b.t, agent...)...)
	p := b.start(args...)
	p.answerSeen()
	return p
}

// answerSeen answers the scripted agent, which asks whether it was heard.
func (p *process) answerSeen() {
	go func() { // ends with the process
		for from := 0; ; {
			m, i, err := p.await(func(_ int, m message) bool { return m.Method == seen }, "", from)
			if errors.Is(err, errEnded) {
				return
			}
			if from = i + 1; err == nil {
				p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
			}
		}
	}()
}

// wrapped is wrap with initialize and a session in the workspace.
func (b *box) wrapped(options ...string) (*process, string) {
	b.t.Helper()
	p := b.wrap(options...)
	p.initialize(nil)
	return p, p.newSession(b.work)
}

// turn lets the agent do what the lines say, to the end of its turn.
func (p *process) turn(session string, lines ...string) json.RawMessage {
	p.t.Helper()
	return p.call("session/prompt", promptParams(session, strings.Join(lines, "\n")))
}

// entries are the ids of the listed checkpoints.
func (p *process) entries(session string) (ids []string) {
	p.t.Helper()
	for _, c := range field[[]any](p.t, p.call("_oino/checkpoints", map[string]any{"sessionId": session}), "checkpoints") {
		ids = append(ids, c.(map[string]any)["entryId"].(string))
	}
	return ids
}

// rewindTo rewinds to the n-th checkpoint, 0 the oldest.
func (p *process) rewindTo(session string, n int, more map[string]any) json.RawMessage {
	p.t.Helper()
	params := map[string]any{"sessionId": session, "entryId": p.entries(session)[n]}
	maps.Copy(params, more)
	return p.call("_oino/rewind", params)
}

// said is the text of what the agent (or oinod for it) has said since from.
func (p *process) said(from int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, m := range p.seen[from:] {
		var params struct {
			Update struct {
				SessionUpdate string                `json:"sessionUpdate"`
				Content       struct{ Text string } `json:"content"`
			} `json:"update"`
		}
		if m.Method == "session/update" && json.Unmarshal(m.Params, &params) == nil && params.Update.SessionUpdate == "agent_message_chunk" {
			b.WriteString(params.Update.Content.Text)
		}
	}
	return b.String()
}

func (p *process) heardSoFar() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seen)
}

// next waits for the next message of a method from index from on.
func (p *process) next(method string, from int) (message, int) {
	p.t.Helper()
	m, i, err := p.await(func(_ int, m message) bool { return m.Method == method }, "", from)
	require.NoError(p.t, err, method)
	return m, i
}

// untilHeard waits for a message that holds text.
func (p *process) untilHeard(text string) {
	p.t.Helper()
	_, _, err := p.await(func(_ int, m message) bool { return bytes.Contains(m.Params, []byte(text)) }, "", 0)
	require.NoError(p.t, err, text)
}

// reply answers a request of oinod's or the agent's.
func (p *process) reply(id json.RawMessage, result string) {
	p.t.Helper()
	require.NoError(p.t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)))
}

// tree is the workspace: every path, its mode, and what it holds.
func (b *box) tree() map[string]string {
	b.t.Helper()
	all := map[string]string{}
	require.NoError(b.t, filepath.WalkDir(b.work, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == b.work {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		}
		all[path] = info.Mode().String() + " " + content
		return nil
	}))
	return all
}

// workspaceTracking is whether this oinod sees what nobody names.
var workspaceTracking = sync.OnceValue(func() bool {
	bin, err := binary()
	if err != nil {
		return false
	}
	dir, err := os.MkdirTemp("", "oinod-tracks-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(bin, "serve", "--agent-dir", filepath.Join(dir, "agent"))
	work := filepath.Join(dir, "work")
	os.Mkdir(work, 0o755)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":%q,"mcpServers":[],"_meta":{"oino":{"tracking":"workspace"}}}}`+"\n", work))
	out, err := cmd.Output()
	return err == nil && bytes.Contains(out, []byte(`"tracking":"workspace"`))
})

func needWorkspaceTracking(t *testing.T) {
	t.Helper()
	if !workspaceTracking() {
		t.Skip("this oinod has no tracking of whole workspaces")
	}
}

func TestP1_a_write_before_the_message_that_names_it(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	b := newBox(t)
	b.write("a.txt", "one\n")
	p, s := b.wrapped()
	before := b.tree()
	p.turn(s, "write a.txt two", "tool c1 edit a.txt", "write sub/new.txt x", "done c1", "append a.txt unnamed", "say done")
	p.rewindTo(s, 0, nil)
	require.Equal(t, before, b.tree())
	p.call("_oino/redo", map[string]any{"sessionId": s})
	require.Equal(t, "two\nunnamed\n", b.read("a.txt"))
	require.Zero(t, p.exit())
}

// What tools name is covered without looking at the whole workspace.
func TestWrapCoversWhatToolsName(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("a.txt", "one\n")
	b.write("b.txt", "old\n")
	b.write("c.txt", "asked?\n")
	p := b.wrap("--track=files")
	p.initialize(nil)
	s := p.newSession(b.work)
	before := b.tree()
	from := p.heardSoFar()
	id, err := p.ask("session/prompt", promptParams(s, strings.Join([]string{
		"named c1 edit a.txt", "fswrite b.txt by the client", "ask c.txt", "write a.txt two", "write never-named.txt x", "done c1"}, "\n")))
	require.NoError(t, err)
	// Nothing is to be seen of the messages that had to wait.
	m, at := p.next("fs/write_text_file", from)
	require.Equal(t, b.path("b.txt"), field[string](t, m.Params, "path"))
	b.write("b.txt", field[string](t, m.Params, "content"))
	p.reply(m.ID, "{}")
	m, _ = p.next("session/request_permission", at)
	p.reply(m.ID, `{"outcome":{"outcome":"selected","optionId":"yes"}}`)
	_, err = p.wait(id)
	require.NoError(t, err)
	require.Equal(t, "asked\n", b.read("c.txt"))
	result := p.rewindTo(s, 0, nil)
	require.Equal(t, []any{b.path("a.txt"), b.path("b.txt"), b.path("c.txt")}, field[[]any](t, result, "restored"))
	require.NoError(t, os.Remove(b.path("never-named.txt")))
	require.Equal(t, before, b.tree())
}

func TestP2_a_command_goes_on_after_the_end(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprint("cancelled ", cancelled), func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.write("a.txt", "one\n")
			b.write("b.txt", "b\n")
			p, s := b.wrapped()
			if cancelled {
				id, err := p.ask("session/prompt", promptParams(s, "write b.txt changed\nlater 300 a.txt late\nsay begun\nhang"))
				require.NoError(t, err)
				p.untilHeard("begun")
				require.NoError(t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s)))
				result, err := p.wait(id)
				require.NoError(t, err)
				require.Equal(t, "cancelled", field[string](t, result, "stopReason"))
			} else {
				p.turn(s, "write b.txt changed", "later 300 a.txt late")
			}
			require.Eventually(t, func() bool { return b.read("a.txt") == "one\nlate\n" }, patience, 10*time.Millisecond)
			// It is nobody's turn that did it: kept, and named.
			result := p.rewindTo(s, 0, nil)
			require.Equal(t, "one\nlate\n", b.read("a.txt"))
			require.Equal(t, "b\n", b.read("b.txt"))
			require.Contains(t, string(result), b.path("a.txt"))
			// The next prompt begins with what is there.
			p.turn(s, "append a.txt more")
			p.rewindTo(s, len(p.entries(s))-1, nil)
			require.Equal(t, "one\nlate\n", b.read("a.txt"))
		})
	}
}

func TestP3_a_replay_is_no_turn(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	store := t.TempDir()
	p, s := b.wrapped("store="+store, "--track=files")
	p.turn(s, "named c1 edit a.txt", "write a.txt one", "done c1")
	require.Zero(t, p.exit())
	b.write("replayed.txt", "there all the time\n")

	p = b.wrap("store="+store, "--track=files")
	p.initialize(nil)
	from := p.heardSoFar()
	p.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	m, _ := p.next("session/update", from)
	require.Contains(t, string(m.Params), "user_message_chunk", "the replay is the agent's own")
	checkpoints := p.call("_oino/checkpoints", map[string]any{"sessionId": s})
	require.Len(t, p.entries(s), 1)
	require.NotContains(t, string(checkpoints), "replayed.txt")
	b.write("replayed.txt", "changed since\n")
	p.rewindTo(s, 0, nil)
	require.NoFileExists(t, b.path("a.txt"))
	require.Equal(t, "changed since\n", b.read("replayed.txt"))
}

func TestP4_ids_as_they_were_spelled(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	record := filepath.Join(b.out, "read")
	p, s := b.wrapped("record="+record, "--track=files")
	for _, id := range []string{`0`, `-1`, `1.5`, `"12"`, `12`, `"0198d5f1-1c3b-7a11-9c07-2f8a3f1b7a44"`, `"\u0041"`} {
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":{"sessionId":"` + s + `","prompt":[{"type":"text","text":"say hello"}]}}`,
			`{"jsonrpc":"2.0","id":%s,"method":"_oino/checkpoints","params":{"sessionId":"` + s + `"}}`,
			`{"jsonrpc":"2.0","id":%s,"method":"fake/echo","params":{"a":1}}`,
			`{"jsonrpc":"2.0","id":%s,"method":"no/such","params":{}}`,
		} {
			p.mu.Lock()
			delete(p.answers, id)
			p.mu.Unlock()
			line = fmt.Sprintf(line, id)
			require.NoError(t, p.send([]byte(line)))
			_, _, err := p.await(func(int, message) bool { return false }, id, 0)
			require.NoError(t, err, line)
			if !strings.Contains(line, "_oino/") {
				read, err := os.ReadFile(record)
				require.NoError(t, err)
				require.Contains(t, string(read), line+"\n")
			}
		}
	}
	// The agent asks with the same ids as the client, at the same time.
	require.NoError(t, p.send([]byte(`{"jsonrpc":"2.0","id":1000,"method":"session/prompt","params":{"sessionId":"`+s+`","prompt":[{"type":"text","text":"fswrite a.txt x\nfswrite b.txt y"}]}}`)))
	from := 0
	for n := range 2 {
		m, i := p.next("fs/write_text_file", from)
		require.Equal(t, fmt.Sprint(n), string(m.ID))
		p.mu.Lock()
		delete(p.answers, fmt.Sprint(n))
		p.mu.Unlock()
		require.NoError(t, p.send([]byte(`{"jsonrpc":"2.0","id":`+fmt.Sprint(n)+`,"method":"fake/echo","params":{"n":1}}`)))
		p.reply(m.ID, "{}")
		from = i + 1
	}
	_, err := p.wait("1000")
	require.NoError(t, err)
	require.Zero(t, p.exit())
}

// What is ours to answer has to have an id that can be answered.
func TestP4_ids_of_our_own_methods(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files")
	for _, id := range []string{"null", "1.5", "true", "{}", "[1]"} {
		from := p.heardSoFar()
		require.NoError(t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"_oino/checkpoints","params":{"sessionId":%q}}`, id, s)))
		m, _, err := p.await(func(_ int, m message) bool { return m.Error != nil }, "", from)
		require.NoError(t, err, id)
		require.Equal(t, id, string(m.ID))
		require.Equal(t, -32600, m.Error.Code)
	}
}

func TestP5_what_is_unknown_passes(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	record := filepath.Join(b.out, "read")
	p, s := b.wrapped("record="+record, "--track=files")
	require.Empty(t, p.entries(s)) // nothing of the session is held any more: its messages are in no other order than the rest
	size := 20 << 20
	if raceEnabled { // which makes ten of one
		size = 4 << 20
	}
	long := strings.Repeat("so it is ", size/9)
	lines := []string{
		`{ "jsonrpc":"2.0","method":"_vendor/news","params":{"a":[1, 2.50,"\u00e9<&>"]},"extra":{"b":null} }`,
		`{"method":"session/unheard_of","params":{"sessionId":"` + s + `","x":"\/"},"jsonrpc":"2.0"}`,
		`not json at all`,
		`{"id":null,"error":{"code":-32700,"message":"?"}}`,
		`{"jsonrpc":"2.0","method":"_vendor/long","params":{"sessionId":"` + s + `","text":"` + long + `"}}`,
		``,
		`[{"jsonrpc":"2.0","method":"batch"}]`,
	}
	for _, line := range lines {
		require.NoError(t, p.send([]byte(line)))
	}
	echoed := p.call("fake/echo", map[string]any{"sessionId": s, "text": long})
	require.Equal(t, long, field[string](t, echoed, "text"))
	read, err := os.ReadFile(record)
	require.NoError(t, err)
	require.True(t, bytes.Contains(read, []byte("\n"+strings.Join(lines, "\n")+"\n")))
	require.Zero(t, p.exit())
}

func TestP6_the_client_ends(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []string
		unread  int // bytes that the agent leaves in its input
	}{
		"an agent that ignores it":           {[]string{"deaf"}, 0},
		"one that ends and leaves a child":   {nil, 0},
		"one that does not read":             {nil, 1 << 20},
		"one that does not read and ignores": {[]string{"deaf"}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			pidFile := filepath.Join(b.out, "pid")
			p, s := b.wrapped(append(c.options, "child="+pidFile, "--track=files")...)
			p.turn(s, "say hello")
			require.Eventually(t, func() bool { data, err := os.ReadFile(pidFile); return err == nil && len(data) > 1 }, patience, 10*time.Millisecond)
			data, err := os.ReadFile(pidFile)
			require.NoError(t, err)
			var child int
			fmt.Sscan(string(data), &child)
			if c.unread > 0 {
				require.NoError(t, p.send([]byte(`{"jsonrpc":"2.0","method":"fake/unread"}`)))
				require.NoError(t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"fake/any","params":{"x":%q}}`, strings.Repeat("x", c.unread))))
			}
			begun := time.Now()
			require.Zero(t, p.exit(), "the client has ended in good order")
			require.Less(t, time.Since(begun), 15*time.Second)
			require.Eventually(t, func() bool { return syscall.Kill(child, 0) == syscall.ESRCH || isZombie(child) }, patience, 20*time.Millisecond)
		})
	}
}

// isZombie is whether a process has ended and nobody has asked how.
func isZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(data, []byte(") Z "))
}

func TestP7_a_process_for_each_prompt(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("a.txt", "zero\n")
	store := t.TempDir()
	p, s := b.wrapped("store="+store, "--track=files")
	p.turn(s, "named c edit a.txt", "write a.txt one", "done c")
	require.Zero(t, p.exit())

	p = b.wrap("store="+store, "--track=files")
	p.initialize(nil)
	p.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	p.turn(s, "named c edit a.txt", "write a.txt two", "done c")
	require.Len(t, p.entries(s), 2)
	require.Zero(t, p.exit())

	// The agent has lost the conversation, and the client goes on with a new
	// one, as some do by themselves.
	p = b.wrap("store="+store, "loses", "--track=files")
	p.initialize(nil)
	p.refused("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	other := p.newSession(b.work)
	require.NotEqual(t, s, other)
	p.turn(other, "named c edit a.txt", "write a.txt three", "done c")
	require.Len(t, p.entries(other), 3)
	p.rewindTo(other, 1, nil)
	require.Equal(t, "one\n", b.read("a.txt"))
	require.Zero(t, p.exit())

	// Another conversation in the same place is another one.
	p = b.wrap("store="+store, "--track=files")
	p.initialize(nil)
	require.Empty(t, p.entries(p.newSession(b.work)))
	p.call("session/load", map[string]any{"sessionId": other, "cwd": b.work, "mcpServers": []any{}})
	require.Len(t, p.entries(other), 1)
	p.rewindTo(other, 0, nil)
	require.Equal(t, "zero\n", b.read("a.txt"))
}

func TestP8_the_model_knows_what_was_kept(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			store := t.TempDir()
			start := func() *process {
				p := b.wrap("store="+store, "--track=files")
				p.initialize(nil)
				return p
			}
			p := start()
			s := p.newSession(b.work)
			p.turn(s, "say KEPT-ANSWER", "named c edit a.txt", "write a.txt kept-file", "done c")
			p.call("session/set_mode", map[string]any{"sessionId": s, "modeId": "careful"})
			p.turn(s, "say LOST-ANSWER", "named d edit b.txt", "write b.txt lost-file", "done d")
			result := p.rewindTo(s, 1, map[string]any{"conversation": "rewind"})
			require.Contains(t, field[string](t, result, "text"), "LOST-ANSWER")
			require.NoFileExists(t, b.path("b.txt"))
			if restart {
				require.Zero(t, p.exit())
				p = start()
				from := p.heardSoFar()
				p.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
				p.mu.Lock()
				var replay bytes.Buffer
				for _, m := range p.seen[from:] {
					replay.Write(m.raw)
				}
				p.mu.Unlock()
				require.Contains(t, replay.String(), "KEPT-ANSWER")
				require.NotContains(t, replay.String(), "LOST")
			}
			from := p.heardSoFar()
			p.turn(s, "told", "mode")
			told := p.said(from)
			require.Contains(t, told, "KEPT-ANSWER")
			require.NotContains(t, told, "LOST")
			require.Contains(t, told, b.path("b.txt"), "it is said what was put back")
			require.True(t, strings.HasSuffix(told, "careful"), "it is set as it was: %s", told)

			// It is one conversation, by the name that the client knows.
			listed := p.call("session/list", map[string]any{})
			sessions := field[[]any](t, listed, "sessions")
			require.Len(t, sessions, 1, string(listed))
			require.Equal(t, s, sessions[0].(map[string]any)["sessionId"])

			// Nothing is told twice, and what follows goes to the same conversation.
			from = p.heardSoFar()
			p.turn(s, "say MORE", "told")
			require.Equal(t, 1, strings.Count(p.said(from), "The conversation so far"))
			require.Len(t, p.entries(s), 3)
			require.Zero(t, p.exit())
			p = start()
			p.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
			from = p.heardSoFar()
			p.turn(s, "told")
			require.Contains(t, p.said(from), "say MORE")
			require.NotContains(t, p.said(from), "LOST")
			require.Zero(t, p.exit())
		})
	}
}

func TestF6_no_rewind_while_a_turn_runs(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("a.txt", "one\n")
	p, s := b.wrapped("--track=files")
	p.turn(s, "named c edit a.txt", "write a.txt two", "done c")
	entry := p.entries(s)[0]
	gate, open := b.gate()
	id, err := p.ask("session/prompt", promptParams(s, "say working\nwait "+gate))
	require.NoError(t, err)
	p.untilHeard("working")
	for method, params := range map[string]map[string]any{
		"_oino/rewind": {"sessionId": s, "entryId": entry}, "_oino/redo": {"sessionId": s},
	} {
		refused := p.refused(method, params)
		require.Equal(t, -32010, refused.Code)
		require.Equal(t, "turn_running", refused.kind())
	}
	from := p.heardSoFar()
	p.turn(s, "/rewind 1")
	require.Contains(t, p.said(from), "working")
	require.Equal(t, "two\n", b.read("a.txt"))
	open()
	_, err = p.wait(id)
	require.NoError(t, err)
	p.rewindTo(s, 0, nil)
	require.Equal(t, "one\n", b.read("a.txt"))
}

// Redo brings the conversation back, to the agent's own session that still
// has it all.
func TestWrapRedoOfTheConversation(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files")
	p.turn(s, "say FIRST")
	p.turn(s, "say SECOND", "named c edit a.txt", "write a.txt x", "done c")
	p.rewindTo(s, 1, map[string]any{"conversation": "rewind"})
	require.NoFileExists(t, b.path("a.txt"))
	p.call("_oino/redo", map[string]any{"sessionId": s})
	require.Equal(t, "x\n", b.read("a.txt"))
	from := p.heardSoFar()
	p.turn(s, "told")
	require.Contains(t, p.said(from), "say SECOND")
	require.NotContains(t, p.said(from), "The conversation so far")
}

// A fork is a session of the agent's that can be prompted at once.
func TestWrapForks(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files")
	p.turn(s, "say KEPT", "named c edit a.txt", "write a.txt one", "done c")
	p.turn(s, "say LOST", "named d edit a.txt", "write a.txt two", "done d")
	fork := field[string](t, p.rewindTo(s, 1, map[string]any{"fork": true}), "sessionId")
	require.NotEqual(t, s, fork)
	require.Equal(t, "one\n", b.read("a.txt"))
	from := p.heardSoFar()
	p.turn(fork, "told", "named e edit a.txt", "write a.txt three", "done e")
	require.Contains(t, p.said(from), "KEPT")
	require.NotContains(t, p.said(from), "LOST")
	require.Len(t, p.entries(fork), 2)
	require.Len(t, p.entries(s), 1, "the second was rewound")
	p.rewindTo(fork, 1, nil)
	require.Equal(t, "one\n", b.read("a.txt"))
	// The conversation forks without files too, before an entry or whole.
	whole := field[string](t, p.call("_oino/fork", map[string]any{"sessionId": fork}), "sessionId")
	from = p.heardSoFar()
	p.turn(whole, "told")
	require.Contains(t, p.said(from), "KEPT")
	// And the client's own fork takes the checkpoints along.
	own := field[string](t, p.call("session/fork", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}}), "sessionId")
	require.Len(t, p.entries(own), 1)
	p.call("session/delete", map[string]any{"sessionId": own})
	require.Equal(t, "session_not_found", p.refused("_oino/checkpoints", map[string]any{"sessionId": own}).kind())
	require.Zero(t, p.exit())
}

// A session that another process has is left alone, and the user knows.
func TestWrapOfASessionThatIsOpenElsewhere(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	store := t.TempDir()
	first, s := b.wrapped("--track=files", "store="+store)
	first.turn(s, "named c edit a.txt", "write a.txt one", "done c")

	second := b.wrap("--track=files", "store="+store)
	second.initialize(nil)
	second.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	require.Contains(t, second.said(0), "open in another process")
	from := second.heardSoFar()
	second.turn(s, "say it works all the same")
	require.Equal(t, "it works all the same", second.said(from))
	// When the other has gone, the next message is a checkpoint.
	require.Len(t, first.entries(s), 1)
	require.Zero(t, first.exit())
	second.turn(s, "named c edit a.txt", "write a.txt two", "done c")
	require.Len(t, second.entries(s), 2)
	second.rewindTo(s, 1, nil)
	require.Equal(t, "one", strings.TrimSpace(b.read("a.txt")))
	require.Zero(t, second.exit())

	third := b.wrap("--track=files", "store="+store)
	third.initialize(nil)
	third.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	require.Len(t, third.entries(s), 1, "what was rewound is listed no more")
}

// An agent that does not end when its client does keeps its session for some
// seconds. Who comes back at once waits for it.
func TestP7_the_process_before_is_still_leaving(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	store := t.TempDir()
	first, s := b.wrapped("deaf", "--track=files", "store="+store)
	first.turn(s, "named c edit a.txt", "write a.txt one", "done c")
	first.in.Close()
	second := b.wrap("--track=files", "store="+store)
	second.initialize(nil)
	second.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	require.Len(t, second.entries(s), 1)
	require.Zero(t, second.exit())
	require.Zero(t, first.exit())
}

func TestWrapWithoutConversation(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files", "--conversation=off")
	p.turn(s, "say FIRST", "named c edit a.txt", "write a.txt x", "done c")
	entry := p.entries(s)[0]
	for _, conversation := range []string{"rewind", "fork"} {
		require.Equal(t, -32602, p.refused("_oino/rewind", map[string]any{"sessionId": s, "entryId": entry, "conversation": conversation}).Code)
	}
	from := p.heardSoFar()
	p.turn(s, "/rewind 1")
	require.Contains(t, p.said(from), "a.txt")
	require.NoFileExists(t, b.path("a.txt"))
	from = p.heardSoFar()
	p.turn(s, "told")
	require.Contains(t, p.said(from), "say FIRST")
}

// commandNames are the commands that were announced last.
func (p *process) commandNames() (names []string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range slices.Backward(p.seen) {
		var params struct {
			Update struct {
				AvailableCommands []struct{ Name string } `json:"availableCommands"`
			} `json:"update"`
		}
		if json.Unmarshal(m.Params, &params) == nil && params.Update.AvailableCommands != nil {
			for _, c := range params.Update.AvailableCommands {
				names = append(names, c.Name)
			}
			return names
		}
	}
	return nil
}

func TestWrapCommands(t *testing.T) {
	t.Parallel()
	own := `commands=[{"name":"review","description":"r"},{"name":"rewind","description":"its own"}]`
	for _, when := range []string{"late", "early"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			record := filepath.Join(b.out, "read")
			p, s := b.wrapped("--track=files", own, when, "record="+record)
			p.turn(s, "named c edit a.txt", "write a.txt x", "done c")
			require.Equal(t, []string{"review", "rewind", "checkpoints", "diff", "oino-rewind", "redo"}, p.commandNames())
			from := p.heardSoFar()
			p.turn(s, "/checkpoints")
			require.Regexp(t, `^1 · .* · 1 file$`, p.said(from))
			p.turn(s, "/rewind 1") // the agent's own
			require.FileExists(t, b.path("a.txt"))

			// Ours asks in menus.
			from = p.heardSoFar()
			id, err := p.ask("session/prompt", promptParams(s, "/oino-rewind"))
			require.NoError(t, err)
			m, at := p.next("session/request_permission", from)
			require.True(t, strings.HasPrefix(string(m.ID), `"oino-`), "%s", m.ID)
			options := field[[]any](t, m.Params, "options")
			require.Len(t, options, 2)
			p.reply(m.ID, fmt.Sprintf(`{"outcome":{"outcome":"selected","optionId":%q}}`, options[1].(map[string]any)["optionId"]))
			m, _ = p.next("session/request_permission", at+1)
			require.Contains(t, string(m.Params), `"type":"diff"`)
			p.reply(m.ID, `{"outcome":{"outcome":"selected","optionId":"files_only"}}`)
			result, err := p.wait(id)
			require.NoError(t, err)
			require.Equal(t, "end_turn", field[string](t, result, "stopReason"))
			require.NoFileExists(t, b.path("a.txt"))
			p.turn(s, "/redo")
			require.FileExists(t, b.path("a.txt"))

			read, err := os.ReadFile(record)
			require.NoError(t, err)
			for _, command := range []string{"/checkpoints", "/oino-rewind", "/redo", "oino-menu"} {
				require.NotContains(t, string(read), command)
			}
			entries := p.call("_oino/entries", map[string]any{"sessionId": s})
			require.NotContains(t, string(entries), "/checkpoints")
			require.Contains(t, string(entries), "/rewind 1")
		})
	}
}

// The log of a wrapped session tells what was said and done.
func TestWrapKeepsTheConversation(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files")
	p.turn(s, "say a", "say b", "tool c1 edit a.txt", "done c1", "say c")
	entries := field[[]any](t, p.call("_oino/entries", map[string]any{"sessionId": s}), "entries")
	var got []string
	for _, e := range entries {
		e := e.(map[string]any)
		line := e["role"].(string)
		if content := e["content"].([]any); len(content) > 0 {
			line += " " + fmt.Sprint(content[0].(map[string]any)["text"])
		}
		if e["toolCallId"] != nil {
			line += fmt.Sprintf(" %v %v %v", e["toolCallId"], e["title"], e["status"])
		}
		got = append(got, line)
	}
	require.Equal(t, []string{"user say a\nsay b\ntool c1 edit a.txt\ndone c1\nsay c", "assistant ab", "tool c1 tool c1 completed", "assistant c"}, got)
}

// Version 2 answers a prompt when it begins, and says later that it is done.
func TestWrapVersion2(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("a.txt", "one\n")
	p := b.wrap("v2", "--track=files")
	hello := p.call("initialize", map[string]any{"protocolVersion": 2, "info": map[string]any{"name": "t", "version": "0"}, "capabilities": map[string]any{}})
	require.Contains(t, field[[]any](t, hello, "capabilities", "_meta", "oino", "methods"), "_oino/rewind")
	s := p.newSession(b.work)
	from := p.heardSoFar()
	gate, open := b.gate()
	p.turn(s, "named c edit a.txt", "write a.txt two", "done c", "say working", "wait "+gate)
	p.untilHeard("working")
	require.Equal(t, "turn_running", p.refused("_oino/rewind", map[string]any{"sessionId": s, "entryId": p.entries(s)[0]}).kind())
	open()
	_, at, err := p.await(func(_ int, m message) bool { return bytes.Contains(m.Params, []byte(`"idle"`)) }, "", from)
	require.NoError(t, err)
	p.turn(s, "/rewind 1 --files")
	require.Equal(t, "one\n", b.read("a.txt"))
	_, _, err = p.await(func(_ int, m message) bool { return bytes.Contains(m.Params, []byte(`"idle"`)) }, "", at+1)
	require.NoError(t, err, "a command of ours ends as a turn does")
	require.NotContains(t, string(p.call("_oino/entries", map[string]any{"sessionId": s})), "/rewind")
}

// Two prompts at once: each has its checkpoint, and the turn is over when both
// are.
func TestWrapQueuedPrompts(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("a.txt", "zero\n")
	p, s := b.wrapped("--track=files")
	gate, open := b.gate()
	first, err := p.ask("session/prompt", promptParams(s, "named c edit a.txt\nwrite a.txt one\ndone c\nsay first\nwait "+gate))
	require.NoError(t, err)
	p.untilHeard("first")
	second, err := p.ask("session/prompt", promptParams(s, "named d edit a.txt\nwrite a.txt two\ndone d"))
	require.NoError(t, err)
	open()
	for _, id := range []string{first, second} {
		_, err := p.wait(id)
		require.NoError(t, err)
	}
	require.Len(t, p.entries(s), 2)
	p.rewindTo(s, 1, nil)
	require.Equal(t, "one\n", b.read("a.txt"))
	p.rewindTo(s, 0, nil)
	require.Equal(t, "zero\n", b.read("a.txt"))
}

// A prompt that is called off while it is held never gets to the agent.
// Some agents never answer the first of two prompts. The turn of the one that is
// answered has ended all the same: what the user does then is the user's.
func TestWrapPromptThatIsNeverAnswered(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	b := newBox(t)
	b.write("a.txt", "mine\n")
	p, s := b.wrapped()
	_, err := p.ask("session/prompt", promptParams(s, "say first\nforget"))
	require.NoError(t, err)
	p.untilHeard("first")
	p.turn(s, "append a.txt the agent's")
	b.write("a.txt", "mine\nthe agent's\nmine again\n")
	var result json.RawMessage
	require.Eventually(t, func() bool { // who was forgotten may still be at work
		result, err = p.try("_oino/rewind", map[string]any{"sessionId": s, "entryId": p.entries(s)[0]})
		return err == nil
	}, patience, 100*time.Millisecond)
	require.Contains(t, string(result), `"code":"conflict"`)
	require.Equal(t, "mine\nthe agent's\nmine again\n", b.read("a.txt"))
}

// A path that the workspace does not cover, and that is named only when it has
// been changed already, is not covered: what it was is not known.
func TestWrapHintsThatComeTooLate(t *testing.T) {
	t.Parallel()
	for _, tracking := range []string{"--track=workspace", "--track=files"} {
		t.Run(tracking, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.write(".gitignore", "ign/\n")
			b.write("ign/late", "before\n")
			b.write("ign/in-time", "before\n")
			p, s := b.wrapped(tracking)
			p.turn(s,
				"named c1 edit ign/in-time", "write ign/in-time after", "done c1",
				"write ign/late middle", "named c2 edit ign/late", "write ign/late after", "done c2",
				"write ign/new middle", "named c3 edit ign/new", "write ign/new after", "done c3")
			result := string(p.rewindTo(s, 0, nil))
			require.Equal(t, "before\n", b.read("ign/in-time"), result)
			for _, name := range []string{"ign/late", "ign/new"} {
				require.Equal(t, "after\n", b.read(name), "never a state in between")
				require.Contains(t, result, fmt.Sprintf(`{"path":%q,"error":`, b.path(name)))
			}
			require.Equal(t, 2, strings.Count(result, `"code":"not_covered"`), result)
		})
	}
}

// What an agent says it changes outside of the roots is not covered, and said
// to be so wherever that is said of anything; what it reads there is nothing to
// tell of.
func TestWrapNamesWhatLiesOutsideOfTheRoots(t *testing.T) {
	t.Parallel()
	for _, tracking := range []string{"--track=workspace", "--track=files"} {
		t.Run(tracking, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			p, s := b.wrapped(tracking)
			out := func(name string) string { return filepath.Join(b.out, name) }
			p.turn(s,
				"named c1 read "+out("read"), "done c1", "named c2 execute "+out("run"), "done c2",
				"named c3 edit "+out("edited"), "write "+out("edited")+" x", "done c3",
				"named c4 other "+out("other"), "diff c4 "+out("other"),
				"named c5 delete .git/config", "named c6 edit a.txt", "write a.txt x", "done c6", "named c7 edit "+out("edited"))
			var want []any
			for path, why := range map[string]string{
				out("edited"): "it is outside the roots of the session", out("other"): "it is outside the roots of the session",
				b.path(".git/config"): "it is part of a git repository's own data, which oinod never touches",
			} {
				want = append(want, map[string]any{"path": path, "reason": "excluded", "error": why})
			}
			said := func(session string) []any {
				listed := field[[]any](t, p.call("_oino/checkpoints", map[string]any{"sessionId": session}), "checkpoints")
				all, _ := listed[0].(map[string]any)["uncovered"].([]any)
				return all
			}
			require.ElementsMatch(t, want, said(s))
			fork := field[string](t, p.call("_oino/fork", map[string]any{"sessionId": s}), "sessionId")
			require.ElementsMatch(t, want, said(fork), "it goes along")
			result := p.rewindTo(s, 0, nil)
			require.ElementsMatch(t, want, field[[]any](t, result, "uncovered"))
			require.Equal(t, []any{b.path("a.txt")}, field[[]any](t, result, "deleted"))
			require.NotContains(t, string(result), "failed")
			require.FileExists(t, out("edited"))
		})
	}
}

func TestWrapCancelBeforeTheAgentHears(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	record := filepath.Join(b.out, "read")
	p, s := b.wrapped("--track=files", "record="+record)
	p.turn(s, "named c edit a.txt", "write a.txt x", "done c")
	from := p.heardSoFar()
	menu, err := p.ask("session/prompt", promptParams(s, "/rewind")) // waits for its answer, and what follows with it
	require.NoError(t, err)
	_, at := p.next("session/request_permission", from)
	held, err := p.ask("session/prompt", promptParams(s, "say never heard"))
	require.NoError(t, err)
	require.NoError(t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s)))
	for _, id := range []string{menu, held} {
		result, err := p.wait(id)
		require.NoError(t, err)
		require.Equal(t, "cancelled", field[string](t, result, "stopReason"))
	}
	p.next("$/cancel_request", at)
	p.turn(s, "say heard")
	read, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NotContains(t, string(read), "never heard")
	require.Contains(t, string(read), "session/cancel")
	require.FileExists(t, b.path("a.txt"))
}

func TestWrapAgentEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("a.txt", "one\n")
	store := t.TempDir()
	p, s := b.wrapped("--track=files", "store="+store)
	e := p.refused("session/prompt", promptParams(s, "say LAST-WORDS\nnamed c edit a.txt\nwrite a.txt two\nexit 7"))
	require.Contains(t, e.Message, "exit status 7")
	require.Equal(t, 7, p.waitExit())

	p = b.wrap("--track=files", "store="+store)
	p.initialize(nil)
	p.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
	require.Contains(t, string(p.call("_oino/entries", map[string]any{"sessionId": s})), "LAST-WORDS")
	p.rewindTo(s, 0, nil)
	require.Equal(t, "one\n", b.read("a.txt"))
	require.Zero(t, p.exit())

	require.Equal(t, 3, b.wrap("exit=3").waitExit())
}

// An answer that is too long to be passed on is still one: nobody waits for
// another, and the turn is over.
func TestWrapAnAnswerThatIsTooLong(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files")
	e := p.refused("session/prompt", promptParams(s, "named c1 edit a.txt\nwrite a.txt x\nhuge"))
	require.Equal(t, "message_too_large", e.kind())
	require.Equal(t, []any{b.path("a.txt")}, field[[]any](t, p.rewindTo(s, 0, nil), "deleted"))
	p.turn(s, "say on")
	require.Zero(t, p.exit())
}

func TestWrapAgentCannotStart(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	b := newBox(t)
	for _, agent := range []string{"no-such-agent-anywhere", b.work, b.write("no-program", "")} {
		cmd := exec.Command(bin, "wrap", "--", agent, "--acp")
		cmd.Env = b.environment()
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 127, exit.ExitCode())
		require.Empty(t, out)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		require.Contains(t, stderr.String(), agent)
	}
}

// The agent's arguments, environment and stderr are as if nobody were between.
func TestWrapPassesEverythingElse(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	b := newBox(t)
	cmd := exec.Command(bin, "wrap", "--log-file", filepath.Join(b.out, "log"), "--", "sh", "-c", `printf '%s|' "$@" "$OINO_AGENT_DIR" "$ODD" >&2; cat >/dev/null; exit 4`, "x", "--track", "a b", "")
	cmd.Env = append(b.environment(), "ODD= a=b ")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 4, exit.ExitCode())
	require.Equal(t, "--track|a b||"+b.agent+"| a=b |", stderr.String())
}

func TestWrapSignals(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	b := newBox(t)
	cmd := exec.Command(bin, "wrap", "--", "sh", "-c", `trap 'echo got it >&2; exit 9' TERM; echo '{"ready":1}'; while :; do sleep 0.05; done`)
	cmd.Env = b.environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ready := make([]byte, 12)
	_, err = io.ReadFull(out, ready)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 9, exit.ExitCode())
	require.Contains(t, stderr.String(), "got it\n")
}

// Sessions do not wait for each other, and a day's traffic leaves nothing behind.
func TestWrapSideBySide(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p, s := b.wrapped("--track=files")
	p.turn(s, "named c edit a.txt", "write a.txt x", "done c")
	from := p.heardSoFar()
	menu, err := p.ask("session/prompt", promptParams(s, "/rewind"))
	require.NoError(t, err)
	m, _ := p.next("session/request_permission", from)
	other := p.newSession(b.work)
	p.turn(other, "say hello")
	require.Len(t, p.entries(s), 1, "what only reads does not wait either")
	p.reply(m.ID, `{"outcome":{"outcome":"cancelled"}}`)
	_, err = p.wait(menu)
	require.NoError(t, err)
	require.FileExists(t, b.path("a.txt"))
}

// What the settings say of workspaces, and that a home directory is none, holds
// for wrapped sessions as for any.
func TestX9_wrap_heeds_the_settings(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	settings := func(b *box, json string) {
		require.NoError(t, os.MkdirAll(b.agent, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(b.agent, "settings.json"), []byte(json), 0o600))
	}
	t.Run("exclude", func(t *testing.T) {
		t.Parallel()
		b := newBox(t)
		settings(b, `{"workspace":{"exclude":["gen/"]}}`)
		b.write("gen/a", "made\n")
		b.write("a", "mine\n")
		p, s := b.wrapped()
		p.turn(s, "append gen/a more", "append a more")
		require.Equal(t, []any{b.path("a")}, field[[]any](t, p.rewindTo(s, 0, nil), "restored"))
		require.Equal(t, "made\nmore\n", b.read("gen/a"))
	})
	for name, prepare := range map[string]func(*box){
		"budget": func(b *box) { settings(b, `{"workspace":{"maxFiles":2}}`) },
		"home":   func(b *box) { b.home = b.work },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			prepare(b)
			for _, f := range []string{"a", "b", "c"} {
				b.write(f, "mine\n")
			}
			p, s := b.wrapped()
			from := p.heardSoFar()
			p.turn(s, "append a unnamed", "named c1 edit b", "append b named", "done c1")
			require.Contains(t, p.said(from), "oinod: not all of the workspace is looked at", "the user is told")
			p.turn(s, "say again")
			require.Equal(t, 1, strings.Count(p.said(from), "oinod: "), "once")
			p.turn(s, "/checkpoints")
			require.Contains(t, p.said(from), " · 1 file · not all covered\n")
			list := p.call("_oino/checkpoints", map[string]any{"sessionId": s})
			require.Contains(t, string(list), fmt.Sprintf(`"uncovered":[{"path":%q,"reason":"budget"`, b.work), "the checkpoint says so")
			p.rewindTo(s, 0, nil)
			require.Equal(t, "mine\nunnamed\n", b.read("a"), "not covered")
			require.Equal(t, "mine\n", b.read("b"), "named by a tool")
		})
	}
}
