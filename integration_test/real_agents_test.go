//go:build unix

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// realAgent is what differs between the published agents that wrap is tested
// with.
type realAgent interface {
	pkg() string // of npm, with its version
	// prepare makes ready what npm has put into a folder of modules.
	prepare(ctx context.Context, modules string) error
	// command is how the agent is started: its environment besides the usual,
	// and its program with arguments. Settings it writes into the box's home.
	command(b *box, modules, model string) (env, argv []string)
	api() modelAPI
	// ready is what a client has to say before it may ask for a session, and
	// mode the one in which the agent does not ask before it does something.
	ready(p *process)
	mode() string

	// The steps of a model that reads a file, replaces a line in it, and runs
	// a command, each with the agent's tool for it.
	look(path string) []step
	edit(path, old, new string) step
	shell(command string) step
}

var realAgents = map[string]realAgent{"gemini": geminiCLI{}, "codex": codexACP{}, "opencode": openCode{}}

// geminiCLI writes files itself where the client offers no fs methods.
type geminiCLI struct{}

func (geminiCLI) pkg() string                           { return "@google/gemini-cli@0.61.0" }
func (geminiCLI) prepare(context.Context, string) error { return nil }

func (geminiCLI) command(b *box, modules, model string) (env, argv []string) {
	b.setting(".gemini/settings.json", `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},`+
		`"privacy":{"usageStatisticsEnabled":false},"general":{"enableAutoUpdate":false}}`)
	return []string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + model},
		[]string{filepath.Join(modules, ".bin", "gemini"), "--acp", "-m", "gemini-2.5-flash"}
}

func (geminiCLI) ready(p *process) { p.call("authenticate", object{"methodId": "gemini-api-key"}) }
func (geminiCLI) api() modelAPI    { return (*scriptedModel).gemini }
func (geminiCLI) mode() string     { return "yolo" }

func (geminiCLI) look(path string) []step {
	return []step{{tool: "read_file", args: object{"file_path": path}}}
}

func (geminiCLI) edit(path, old, new string) step {
	return step{tool: "replace", args: object{"file_path": path, "instruction": "change it", "old_string": old, "new_string": new}}
}

func (geminiCLI) shell(command string) step {
	return step{tool: "run_shell_command", args: object{"command": command}}
}

// codexACP is given all rights: in its other modes a helper runs its commands,
// which needs bubblewrap. It does not end when its input does, so that oinod
// has to end it.
type codexACP struct{}

func (codexACP) pkg() string                           { return "@zed-industries/codex-acp@0.16.0" }
func (codexACP) prepare(context.Context, string) error { return nil }

func (codexACP) command(b *box, modules, model string) (env, argv []string) {
	// With a model that it does not know it has no apply_patch.
	b.setting(".codex/config.toml", fmt.Sprintf(`
model = "gpt-5.4"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "%s/v1"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0
`, model))
	return nil, []string{filepath.Join(modules, ".bin", "codex-acp")}
}

func (codexACP) ready(*process)     {}
func (codexACP) api() modelAPI      { return (*scriptedModel).responses }
func (codexACP) mode() string       { return "full-access" }
func (codexACP) look(string) []step { return nil } // it has no tool for that

func (codexACP) edit(path, old, new string) step {
	return step{tool: "apply_patch", input: fmt.Sprintf("*** Begin Patch\n*** Update File: %s\n@@\n-%s\n+%s\n*** End Patch\n", path, old, new)}
}

func (codexACP) shell(command string) step {
	// What takes longer than yield_time_ms goes on beside the turn.
	return step{tool: "exec_command", args: object{"cmd": command, "yield_time_ms": patience.Milliseconds()}}
}

// openCode has no mode for its rights, but a setting.
type openCode struct{}

func (openCode) pkg() string { return "opencode-ai@1.18.33" }

// prepare runs the package's own script, which puts that of its binaries in
// place which runs here. It tries it, and what that leaves is no concern of the
// user's home.
func (openCode) prepare(ctx context.Context, modules string) error {
	script := exec.CommandContext(ctx, "node", "postinstall.mjs")
	script.Dir = filepath.Join(modules, "opencode-ai")
	script.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + script.Dir}
	if out, err := script.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (openCode) command(b *box, modules, model string) (env, argv []string) {
	b.setting(".config/opencode/opencode.json", encoded(object{
		"autoupdate": false, "share": "disabled", "model": "scripted/model", "small_model": "scripted/model",
		"provider": object{"scripted": object{"npm": "@ai-sdk/openai-compatible",
			"options": object{"baseURL": model + "/v1", "apiKey": "none"},
			"models":  object{"model": object{"tool_call": true, "limit": object{"context": 100000, "output": 8000}}}}},
		"permission": object{"edit": "allow", "bash": "allow"},
	}))
	// It installs a library for plug-ins at its start, if it can.
	return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "npm_config_offline=true"},
		[]string{filepath.Join(modules, ".bin", "opencode"), "acp"}
}

func (openCode) ready(*process) {}
func (openCode) api() modelAPI  { return (*scriptedModel).chat }
func (openCode) mode() string   { return "" }

func (openCode) look(path string) []step {
	return []step{{tool: "read", args: object{"filePath": path}}}
}

func (openCode) edit(path, old, new string) step {
	return step{tool: "edit", args: object{"filePath": path, "oldString": old, "newString": new}}
}

func (openCode) shell(command string) step {
	return step{tool: "bash", args: object{"command": command, "description": "changes files"}}
}

// setting writes a file of settings into the box's home.
func (b *box) setting(rel, content string) {
	b.t.Helper()
	path := filepath.Join(b.home, rel)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, []byte(content), 0o644))
}

// chosenAgents are the names of the agents to run. Each is up to hundreds of
// megabytes to install, so that they are only run where one asks for them:
// OINO_REAL_AGENTS is a list of names, or 1 or all for all of them.
func chosenAgents(t *testing.T) []string {
	t.Helper()
	var all []string
	for name := range realAgents {
		all = append(all, name)
	}
	slices.Sort(all)
	switch chosen := os.Getenv("OINO_REAL_AGENTS"); chosen {
	case "":
		t.Skipf("set OINO_REAL_AGENTS=1, or to some of %s, to run real agents", strings.Join(all, ","))
		return nil
	case "1", "all":
		return all
	default:
		names := strings.Split(chosen, ",")
		for _, name := range names {
			require.Contains(t, all, name, "OINO_REAL_AGENTS=%s", chosen)
		}
		return names
	}
}

// install gives the folder of node modules that holds the agent's package,
// installed once into a cache that is named by it.
func install(t *testing.T, agent realAgent) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "oinod-test-agents")
	done := filepath.Join(cache, strings.NewReplacer("/", "+", "@", "").Replace(agent.pkg()))
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
	npm := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", agent.pkg())
	npm.Dir = part
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, agent.prepare(ctx, filepath.Join(part, "node_modules")))
	if err := os.Rename(part, done); err != nil {
		_, there := os.Stat(done)
		require.NoError(t, there, err)
	}
	return modules
}

// startAgent starts an oinod before the agent. The agent gets nothing of the
// environment of the tests, in which there may be keys and settings for it, and
// its home is not below its directory for temporary files, which codex minds.
func (b *box) startAgent(agent realAgent, modules, model string) *process {
	b.t.Helper()
	env, argv := agent.command(b, modules, model)
	args := []string{"wrap", "--", "env", "-i", "PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "TMPDIR=" + b.out}
	p := b.start(append(append(args, env...), argv...)...)
	// An oinod that is killed, as at the end of a test, leaves behind an agent
	// that does not end with its input.
	b.t.Cleanup(func() { p.exit() })
	return p
}

// TestRealAgents runs published agents, each with a model that is a script.
func TestRealAgents(t *testing.T) {
	chosen := chosenAgents(t)
	t.Parallel()
	for _, name := range chosen {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rewindsRealAgent(t, realAgents[name])
		})
	}
}

// rewindsRealAgent is the story that is the same for all agents.
func rewindsRealAgent(t *testing.T, agent realAgent) {
	require.True(t, workspaceTracking(), "this oinod cannot see what a shell changes")
	modules := install(t, agent)
	model := newScriptedModel(t, agent.api())
	b := newBox(t)
	b.write("a.txt", "one\ntwo\n")
	b.write("gone.txt", "to be removed\n")
	b.write("sub/moved.txt", "to be moved\n")
	before := b.tree()

	p := b.startAgent(agent, modules, model.server.URL)
	p.initialize(nil)
	agent.ready(p)
	s := p.newSession(b.work)
	if mode := agent.mode(); mode != "" {
		p.call("session/set_mode", object{"sessionId": s, "modeId": mode})
	}
	turn := func(text string, steps ...step) {
		t.Helper()
		model.play(steps...)
		p.turn(s, text)
		require.Zero(t, model.left(), "the turn ended before the script; the model was told: %s", model.was())
	}
	edit := func(old, new string) step { return agent.edit(b.path("a.txt"), old, new) }

	// Edit by tool, change by shell, and all of it back.
	turn("please edit a.txt", append(agent.look(b.path("a.txt")),
		edit("one", "ONE"),
		agent.shell("rm gone.txt && mv sub/moved.txt here.txt && rmdir sub && echo shell >> a.txt"),
		step{text: "FIRST-ANSWER"})...)
	require.Equal(t, "ONE\ntwo\nshell\n", b.read("a.txt"))
	require.NoFileExists(t, b.path("gone.txt"))
	require.FileExists(t, b.path("here.txt"))
	p.rewindTo(s, 0, nil)
	require.Equal(t, before, b.tree())

	// The next edit works, although the file is not what the agent left.
	turn("edit it again", edit("one", "SECOND-EDIT"), step{text: "SECOND-ANSWER"})
	require.Equal(t, "SECOND-EDIT\ntwo\n", b.read("a.txt"))

	// Back before that message, with the conversation: the model hears what
	// was kept and nothing of the rest, in the mode that was set.
	p.rewindTo(s, len(p.entries(s))-1, object{"conversation": "rewind"})
	require.Equal(t, before, b.tree())
	from := p.heardSoFar()
	turn("now edit the other line", edit("two", "zwei"), step{text: "THIRD-ANSWER"})
	require.Equal(t, "THIRD-ANSWER", p.said(from), "nothing of how the agent was set")
	require.Equal(t, "one\nzwei\n", b.read("a.txt"))
	for _, kept := range []string{"please edit a.txt", "FIRST-ANSWER", "now edit the other line"} {
		require.Contains(t, model.was(), kept)
	}
	for _, rewound := range []string{"edit it again", "SECOND-EDIT", "SECOND-ANSWER"} {
		require.NotContains(t, model.was(), rewound)
	}
	require.Zero(t, p.exit())
}
