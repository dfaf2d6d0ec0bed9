//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests below run published agents, behind OINO_REAL_AGENTS=1: each is
// many megabytes to install. Their model is a script on 127.0.0.1.

// scriptedModel plays a model: each request of an agent's main loop takes the
// next step.
type scriptedModel struct {
	server *httptest.Server

	mu    sync.Mutex
	steps []step
	heard []string // the bodies of the main loop's requests
}

// step is what the model says: a text, or the call of a tool.
type step struct {
	text string
	tool string
	args map[string]any
}

func newScriptedModel(t *testing.T) *scriptedModel {
	m := &scriptedModel{}
	m.server = httptest.NewServer(http.HandlerFunc(m.gemini))
	t.Cleanup(func() {
		m.server.CloseClientConnections()
		m.server.Close()
	})
	return m
}

// play makes steps the next ones, and forgets what was heard.
func (m *scriptedModel) play(steps ...step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps, m.heard = steps, nil
}

// was is all that the model was told since play.
func (m *scriptedModel) was() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.heard, "\n")
}

// next takes a step for a request of the main loop.
func (m *scriptedModel) next(body string) step {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, body)
	if len(m.steps) == 0 {
		return step{text: "(the script is over)"}
	}
	s := m.steps[0]
	m.steps = m.steps[1:]
	return s
}

// gemini answers as the API of that name.
func (m *scriptedModel) gemini(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var request struct {
		Tools []struct {
			FunctionDeclarations []json.RawMessage `json:"functionDeclarations"`
		} `json:"tools"`
	}
	_ = json.Unmarshal(body, &request)
	if strings.Contains(r.URL.Path, "countTokens") {
		fmt.Fprint(w, `{"totalTokens":10}`)
		return
	}
	s := step{text: `{"reasoning":"x","model_choice":"flash","complexity_score":10,"complexity_reasoning":"x","next_speaker":"user"}`}
	if len(request.Tools) > 0 && len(request.Tools[0].FunctionDeclarations) > 0 {
		s = m.next(string(body))
	}
	part := map[string]any{"text": s.text}
	if s.tool != "" {
		part = map[string]any{"functionCall": map[string]any{"name": s.tool, "args": s.args}, "thoughtSignature": "c2ln"}
	}
	answer, err := json.Marshal(map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": "fake",
	})
	if err != nil {
		return
	}
	if strings.Contains(r.URL.Path, "stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\r\n\r\n", answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(answer)
}

// installed is a folder of node modules that holds one package, installed once
// into a cache that is named by it.
func installed(t *testing.T, pkg string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "oinod-test-agents")
	done := filepath.Join(cache, strings.NewReplacer("/", "+", "@", "").Replace(pkg))
	modules := filepath.Join(done, "node_modules")
	if _, err := os.Stat(done); err == nil {
		return modules
	}
	require.NoError(t, os.MkdirAll(cache, 0o755))
	part, err := os.MkdirTemp(cache, "part-")
	require.NoError(t, err)
	defer os.RemoveAll(part)
	require.NoError(t, os.WriteFile(filepath.Join(part, "package.json"), []byte(`{"private":true}`), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", pkg)
	npm.Dir = part
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if err := os.Rename(part, done); err != nil {
		_, there := os.Stat(done)
		require.NoError(t, there, err)
	}
	return modules
}

func TestRealGemini(t *testing.T) {
	if os.Getenv("OINO_REAL_AGENTS") != "1" {
		t.Skip("set OINO_REAL_AGENTS=1 to run real agents")
	}
	t.Parallel()
	needWorkspaceTracking(t)
	modules := installed(t, "@google/gemini-cli@0.61.0")
	model := newScriptedModel(t)
	b := newBox(t)
	settings := filepath.Join(b.home, ".gemini", "settings.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(settings), 0o755))
	require.NoError(t, os.WriteFile(settings, []byte(`{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},`+
		`"privacy":{"usageStatisticsEnabled":false},"general":{"enableAutoUpdate":false}}`), 0o644))
	b.write("a.txt", "one\ntwo\n")
	b.write("gone.txt", "to be removed\n")
	b.write("sub/moved.txt", "to be moved\n")
	before := b.tree()

	p := b.start("wrap", "--", "env", "GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL="+model.server.URL, "GEMINI_CLI_HOME="+b.home,
		filepath.Join(modules, ".bin", "gemini"), "--acp", "-m", "gemini-2.5-flash")
	p.initialize(nil)
	p.call("authenticate", map[string]any{"methodId": "gemini-api-key"})
	s := p.newSession(b.work)
	p.call("session/set_mode", map[string]any{"sessionId": s, "modeId": "yolo"})
	edit := func(old, new string) step {
		return step{tool: "replace", args: map[string]any{"file_path": b.path("a.txt"), "instruction": "change it", "old_string": old, "new_string": new}}
	}

	// Edit by tool, change by shell, and all of it back.
	model.play(
		step{tool: "read_file", args: map[string]any{"file_path": b.path("a.txt")}},
		edit("one", "ONE"),
		step{tool: "run_shell_command", args: map[string]any{"command": "rm gone.txt && mv sub/moved.txt here.txt && rmdir sub && echo shell >> a.txt"}},
		step{text: "FIRST-ANSWER"})
	p.turn(s, "please edit a.txt")
	require.Equal(t, "ONE\ntwo\nshell\n", b.read("a.txt"))
	require.NoFileExists(t, b.path("gone.txt"))
	require.FileExists(t, b.path("here.txt"))
	p.rewindTo(s, 0, nil)
	require.Equal(t, before, b.tree())

	// The next edit works, although the file is not what the agent left.
	model.play(edit("one", "uno"), step{text: "SECOND-ANSWER"})
	p.turn(s, "edit it again")
	require.Equal(t, "uno\ntwo\n", b.read("a.txt"))

	// Back before that message, with the conversation: the model hears what
	// was kept and nothing of the rest, in the mode that was set.
	p.rewindTo(s, len(p.entries(s))-1, map[string]any{"conversation": "rewind"})
	require.Equal(t, before, b.tree())
	model.play(edit("two", "zwei"), step{text: "THIRD-ANSWER"})
	p.turn(s, "now edit the other line")
	require.Equal(t, "one\nzwei\n", b.read("a.txt"))
	require.Contains(t, model.was(), "FIRST-ANSWER")
	require.Contains(t, model.was(), "now edit the other line")
	require.NotContains(t, model.was(), "SECOND-ANSWER")
	require.NotContains(t, model.was(), "edit it again")
	require.Zero(t, p.exit())
}
