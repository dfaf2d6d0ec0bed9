//go:build unix

package integration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/stretchr/testify/require"
)

// errNoNode is why the Node clients cannot run here.
var errNoNode = errors.New("node and npm are not both installed")

// nodeModules installs the Node clients of the lock file, once a run, into a
// cache outside of the tree that is named by what is installed.
var nodeModules = sync.OnceValues(func() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", errNoNode
		}
	}
	hash := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join("clients", name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "oinod-test-clients")
	done := filepath.Join(cache, fmt.Sprintf("%x", hash.Sum(nil)[:12]))
	if _, err := os.Stat(done); err == nil {
		return filepath.Join(done, "node_modules"), nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	// Installed under a name of its own and renamed, so that a run that is
	// interrupted, or two at once, leave no half of it.
	part, err := os.MkdirTemp(cache, "part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join("clients", name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(part, name), data, 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = part
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(part, done); err != nil {
		if _, there := os.Stat(done); there != nil {
			return "", err
		}
	}
	return filepath.Join(done, "node_modules"), nil
})

// needNode is the folder of the installed Node clients. Without node, or
// without a registry to install from, the test is skipped, and says so; with
// OINO_REQUIRE_NODE=1 it fails.
func needNode(t *testing.T) string {
	t.Helper()
	modules, err := nodeModules()
	if err == nil {
		return modules
	}
	if os.Getenv("OINO_REQUIRE_NODE") == "1" {
		require.NoError(t, err, "OINO_REQUIRE_NODE=1")
	}
	reason := fmt.Sprintf("SKIPPED: %s does not run: %v", t.Name(), err)
	fmt.Fprintln(os.Stderr, reason) // also without -v
	t.Skip(reason)
	return ""
}

// clientEnvironment is that of a client which spawns oinod itself.
func (b *box) clientEnvironment() []string {
	bin, err := binary()
	require.NoError(b.t, err)
	return append(b.environment(), "OINO_UNDER_TEST="+bin, "OINO_WORKSPACE="+b.work, "NO_COLOR=1")
}

// TestTypeScriptSDK lets both lines of the official SDK play one story.
func TestTypeScriptSDK(t *testing.T) {
	t.Parallel()
	modules := needNode(t)
	for _, script := range []string{"sdk2.mjs", "sdk1.mjs"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			// node looks for modules beside the script, and must write nothing
			// beside ours.
			require.NoError(t, os.Symlink(modules, filepath.Join(b.out, "node_modules")))
			for _, name := range []string{"story.mjs", script} {
				data, err := os.ReadFile(filepath.Join("clients", name))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(b.out, name), data, 0o644))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			node := exec.CommandContext(ctx, "node", filepath.Join(b.out, script))
			node.Env = b.clientEnvironment()
			out, err := node.CombinedOutput()
			require.NoError(t, err, "%s", out)
			// A library complains on stderr of what it does not know, and drops it.
			require.Equal(t, "the story was played\n", string(out))
		})
	}
}

// TestACPX drives the command line client acpx, which starts a new agent for
// every prompt and knows nothing of our methods: what it can do is typed.
func TestACPX(t *testing.T) {
	t.Parallel()
	modules := needNode(t)
	b := newBox(t)
	bin, err := binary()
	require.NoError(t, err)
	acpx := b.acpx(modules, bin+" serve")
	b.write("a.txt", "before\n")
	acpx("sessions", "new")
	acpx("prompt", "make it new")

	// The agent's part is played by another process, once acpx has let go of
	// the session.
	p := b.serve()
	sessions := field[[]any](t, p.call("session/list", map[string]any{"cwd": b.work}), "sessions")
	require.Len(t, sessions, 1)
	info := sessions[0].(map[string]any)
	require.Equal(t, "make it new", info["title"])
	session := info["sessionId"].(string)
	p.untilUnlocked(session, b.work)
	p.call("_oino/write", map[string]any{"sessionId": session, "path": b.path("a.txt"), "content": "after\n"})
	p.call("_oino/write", map[string]any{"sessionId": session, "path": b.path("n.txt"), "content": "new\n"})
	p.call("_oino/turn_end", map[string]any{"sessionId": session})
	require.Zero(t, p.exit())

	require.Contains(t, acpx("prompt", "/checkpoints"), "make it new")
	b.waitUntilFree(session)
	require.Equal(t, "after\n", b.read("a.txt"))
	acpx("prompt", "/rewind 1 --files")
	require.Equal(t, "before\n", b.read("a.txt"))
	require.NoFileExists(t, b.path("n.txt"))
	b.waitUntilFree(session)
	acpx("prompt", "/redo")
	require.Equal(t, "after\n", b.read("a.txt"))
	b.waitUntilFree(session)

	// Over all these processes it was one conversation, and no command is in it.
	acpx("prompt", "and again")
	p = b.serve()
	p.untilUnlocked(session, b.work)
	entries := field[[]any](t, p.call("_oino/entries", map[string]any{"sessionId": session}), "entries")
	require.Len(t, entries, 2)
	require.Zero(t, p.exit())
	acpx("exec", "one shot")
	p = b.serve()
	require.Len(t, field[[]any](t, p.call("session/list", map[string]any{}), "sessions"), 2)
}

// untilUnlocked opens a session as soon as its owner has let go of it.
func (p *process) untilUnlocked(session, cwd string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		_, err := p.try("session/resume", map[string]any{"sessionId": session, "cwd": cwd, "mcpServers": []any{}})
		var e *wireError
		if errors.As(err, &e) && e.kind() == "session_locked" {
			return false
		}
		return err == nil
	}, patience, 20*time.Millisecond)
}

// waitUntilFree waits until no process has the session open.
func (b *box) waitUntilFree(session string) {
	b.t.Helper()
	p := b.serve()
	p.untilUnlocked(session, b.work)
	require.Zero(b.t, p.exit())
}

// goClient is a client of the Go SDK that keeps what it is told.
type goClient struct {
	acp.Client // the methods that oinod never calls
	mu         sync.Mutex
	updates    []acp.SessionUpdate
	asked      []string
	answer     map[string]any
}

func (c *goClient) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updates = append(c.updates, n.Update)
	return nil
}

func (c *goClient) HandleExtensionMethod(_ context.Context, method string, _ json.RawMessage) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, method)
	return c.answer, nil
}

// heard gives what was told since it was last asked.
func (c *goClient) heard() []acp.SessionUpdate {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.updates
	c.updates = nil
	return heard
}

// TestGoSDK lets the typed client of the Go SDK play the story.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	a := b.write("a.txt", "before\n")
	bin, err := binary()
	require.NoError(t, err)
	cmd := exec.Command(bin, "serve")
	cmd.Env = b.environment()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	client := &goClient{answer: map[string]any{}}
	conn := acp.NewClientSideConnection(client, in, out)
	ended := false
	defer func() {
		if !ended {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ext := func(method string, params map[string]any) json.RawMessage {
		t.Helper()
		result, err := conn.CallExtension(ctx, method, params)
		require.NoError(t, err, method)
		return result
	}

	hello, err := conn.Initialize(ctx, acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber,
		ClientCapabilities: acp.ClientCapabilities{Meta: map[string]any{"oino": map[string]any{"sessionBeforeFork": true}}}})
	require.NoError(t, err)
	require.EqualValues(t, 1, hello.ProtocolVersion)
	require.True(t, hello.AgentCapabilities.LoadSession)
	require.Equal(t, "oinod", hello.AgentInfo.Name)

	made, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: b.work, McpServers: []acp.McpServer{}})
	require.NoError(t, err)
	session := string(made.SessionId)
	said, err := conn.Prompt(ctx, acp.PromptRequest{SessionId: made.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock("make it new")}})
	require.NoError(t, err)
	require.Equal(t, acp.StopReasonEndTurn, said.StopReason)
	entry := said.Meta["oino"].(map[string]any)["entryId"].(string)

	ext("_oino/write", map[string]any{"sessionId": session, "path": a, "content": "after\n"})
	ext("_oino/append", map[string]any{"sessionId": session, "entries": []any{map[string]any{"role": "assistant", "content": "It is new."}}})
	ext("_oino/turn_end", map[string]any{"sessionId": session})
	checkpoints := field[[]any](t, ext("_oino/checkpoints", map[string]any{"sessionId": session}), "checkpoints")
	require.Len(t, checkpoints, 1)
	rewound := ext("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
	require.Equal(t, []any{a}, field[[]any](t, rewound, "restored"))
	require.Equal(t, "before\n", b.read("a.txt"))
	ext("_oino/redo", map[string]any{"sessionId": session})
	require.Equal(t, "after\n", b.read("a.txt"))

	_, err = conn.CallExtension(ctx, "_oino/redo", map[string]any{"sessionId": session})
	var refused *acp.RequestError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, -32002, refused.Code)

	client.heard()
	_, err = conn.LoadSession(ctx, acp.LoadSessionRequest{SessionId: made.SessionId, Cwd: b.work, McpServers: []acp.McpServer{}})
	require.NoError(t, err)
	var replayed []string
	for _, u := range client.heard() {
		switch {
		case u.UserMessageChunk != nil:
			replayed = append(replayed, "user: "+u.UserMessageChunk.Content.Text.Text)
		case u.AgentMessageChunk != nil:
			replayed = append(replayed, "agent: "+u.AgentMessageChunk.Content.Text.Text)
		case u.AvailableCommandsUpdate != nil:
			replayed = append(replayed, "commands")
		default:
			t.Errorf("an update that the library does not know: %+v", u)
		}
	}
	require.Equal(t, "user: make it new, agent: It is new., commands", strings.Join(replayed, ", "))

	forked, err := conn.UnstableForkSession(ctx, acp.UnstableForkSessionRequest{SessionId: made.SessionId, Cwd: b.work, McpServers: []acp.UnstableMcpServer{},
		Meta: map[string]any{"oino": map[string]any{"entryId": entry, "position": "at"}}})
	require.NoError(t, err)
	require.NotEqual(t, made.SessionId, forked.SessionId)
	client.mu.Lock()
	require.Contains(t, client.asked, "_oino/session_before_fork")
	client.mu.Unlock()
	listed, err := conn.ListSessions(ctx, acp.ListSessionsRequest{Cwd: &b.work})
	require.NoError(t, err)
	require.Len(t, listed.Sessions, 2)
	_, err = conn.UnstableDeleteSession(ctx, acp.UnstableDeleteSessionRequest{SessionId: made.SessionId})
	require.NoError(t, err)
	ext("_oino/rewind", map[string]any{"sessionId": string(forked.SessionId), "entryId": entry})
	require.Equal(t, "before\n", b.read("a.txt"))
	_, err = conn.ResumeSession(ctx, acp.ResumeSessionRequest{SessionId: forked.SessionId, Cwd: b.work, McpServers: []acp.McpServer{}})
	require.NoError(t, err)
	_, err = conn.CloseSession(ctx, acp.CloseSessionRequest{SessionId: forked.SessionId})
	require.NoError(t, err)

	ended = true
	in.Close()
	<-conn.Done()
	require.NoError(t, cmd.Wait())
}
