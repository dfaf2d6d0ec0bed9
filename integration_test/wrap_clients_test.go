//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	acp "github.com/coder/acp-go-sdk"
	"github.com/stretchr/testify/require"
)

// TestTypeScriptSDKThroughWrap lets both lines of the official SDK play a
// story with a wrapped agent.
func TestTypeScriptSDKThroughWrap(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	modules := needNode(t)
	for _, script := range []string{"sdk2.mjs", "sdk1.mjs"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			require.NoError(t, os.Symlink(modules, filepath.Join(b.out, "node_modules")))
			for _, name := range []string{"story.mjs", "wrapped.mjs", script} {
				data, err := os.ReadFile(filepath.Join("clients", name))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(b.out, name), data, 0o644))
			}
			args, err := json.Marshal(append([]string{"wrap", "--"}, fakeCommand(t)...))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			node := exec.CommandContext(ctx, "node", filepath.Join(b.out, script))
			node.Env = append(b.clientEnvironment(), "OINO_STORY=wrapped", "OINO_ARGUMENTS="+string(args))
			out, err := node.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "the story was played\n", string(out))
		})
	}
}

// TestACPXThroughWrap drives acpx, which starts agent and oinod anew for every
// prompt and goes on with a new session where the old one is lost.
func TestACPXThroughWrap(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	modules := needNode(t)
	b := newBox(t)
	store := t.TempDir()
	bin, err := binary()
	require.NoError(t, err)
	agent := bin + " wrap --"
	for _, a := range fakeCommand(t, "store="+store) {
		agent += " " + a
	}
	acpx := b.acpx(modules, agent)
	b.write("a.txt", "before\n")
	acpx("sessions", "new")
	require.Contains(t, acpx("prompt", "write a.txt after\nsay HEARD"), "HEARD")
	require.Equal(t, "after\n", b.read("a.txt"))
	free := func() { // acpx lets go of its agent a while after the prompt
		t.Helper()
		p := b.serve()
		sessions := field[[]any](t, p.call("session/list", map[string]any{"cwd": b.work}), "sessions")
		require.Len(t, sessions, 1)
		p.untilUnlocked(sessions[0].(map[string]any)["sessionId"].(string), b.work)
		require.Zero(t, p.exit())
	}
	free()
	require.Contains(t, acpx("prompt", "/checkpoints"), "write a.txt after")
	free()
	acpx("prompt", "/rewind 1")
	require.Equal(t, "before\n", b.read("a.txt"))
	free()
	require.NotContains(t, acpx("prompt", "told"), "HEARD")
	free()
}

// TestGoSDKThroughWrap lets the typed client of the Go SDK talk to a wrapped
// agent.
func TestGoSDKThroughWrap(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	b := newBox(t)
	b.write("a.txt", "before\n")
	bin, err := binary()
	require.NoError(t, err)
	cmd := exec.Command(bin, append([]string{"wrap", "--"}, fakeCommand(t)...)...)
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

	hello, err := conn.Initialize(ctx, acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber})
	require.NoError(t, err)
	require.Equal(t, "fake", hello.AgentInfo.Name)
	made, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: b.work, McpServers: []acp.McpServer{}})
	require.NoError(t, err)
	turn := func(text string) {
		t.Helper()
		said, err := conn.Prompt(ctx, acp.PromptRequest{SessionId: made.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
		require.NoError(t, err)
		require.Equal(t, acp.StopReasonEndTurn, said.StopReason)
	}
	turn("write a.txt after\nwrite n.txt new\nsay done")
	require.Equal(t, "after\n", b.read("a.txt"))
	answer, err := conn.CallExtension(ctx, "_oino/checkpoints", map[string]any{"sessionId": made.SessionId})
	require.NoError(t, err)
	checkpoints := field[[]any](t, answer, "checkpoints")
	require.Len(t, checkpoints, 1)
	_, err = conn.CallExtension(ctx, "_oino/rewind", map[string]any{"sessionId": made.SessionId, "entryId": checkpoints[0].(map[string]any)["entryId"]})
	require.NoError(t, err)
	require.Equal(t, "before\n", b.read("a.txt"))
	require.NoFileExists(t, b.path("n.txt"))
	turn("/redo")
	require.Equal(t, "after\n", b.read("a.txt"))
	for _, u := range client.heard() {
		if u.UserMessageChunk == nil && u.AgentMessageChunk == nil && u.AvailableCommandsUpdate == nil && u.ToolCall == nil && u.ToolCallUpdate == nil {
			t.Errorf("an update that the library does not know: %+v", u)
		}
	}

	ended = true
	in.Close()
	<-conn.Done()
	require.NoError(t, cmd.Wait())
}
