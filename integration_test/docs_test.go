//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// section is one method of the protocol's document.
type section struct {
	title    string
	examples []string
}

// protocolSections reads docs/protocol.md.
func protocolSections(t *testing.T) []section {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	require.NoError(t, err)
	var sections []section
	var example *strings.Builder
	for line := range strings.Lines(string(data)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "```dialogue":
			example = &strings.Builder{}
		case trimmed == "```" && example != nil:
			require.NotEmpty(t, sections, "an example before the first heading")
			last := &sections[len(sections)-1]
			last.examples = append(last.examples, example.String())
			example = nil
		case example != nil:
			example.WriteString(line)
		case strings.HasPrefix(line, "#"):
			sections = append(sections, section{title: strings.Trim(strings.TrimLeft(trimmed, "# "), "`")})
		}
	}
	require.Nil(t, example, "an example without an end")
	return sections
}

// exampleStart is where the document says that every example begins.
const exampleStart = `-- workspace/a.txt --
hello
-- dialogue --
prompt "make it shout"
`

// TestEveryExampleOfTheProtocol plays each example of docs/protocol.md.
func TestEveryExampleOfTheProtocol(t *testing.T) {
	t.Parallel()
	played := 0
	for _, s := range protocolSections(t) {
		for i, example := range s.examples {
			played++
			t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(s.title, "/", "."), i), func(t *testing.T) {
				t.Parallel()
				play(t, txtar.Parse([]byte(exampleStart+example)), false)
			})
		}
	}
	require.NotZero(t, played)
}

// example is the first block of a language in docs/protocol.md.
func example(t *testing.T, language string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(data), "\n```"+language+"\n")
	require.True(t, found, "no example in %s", language)
	block, _, found = strings.Cut(block, "\n```\n")
	require.True(t, found)
	return block + "\n"
}

// TestTheExampleOfAClient runs the Python client as it stands there.
func TestTheExampleOfAClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	bin, err := binary()
	require.NoError(t, err)
	b := newBox(t)
	script := filepath.Join(b.out, "client.py")
	require.NoError(t, os.WriteFile(script, []byte(example(t, "python")), 0o644))
	onPath := filepath.Join(b.out, "bin")
	require.NoError(t, os.Mkdir(onPath, 0o755))
	require.NoError(t, os.Symlink(bin, filepath.Join(onPath, "oinod")))
	notes := b.write("notes.txt", "mine\n")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := exec.CommandContext(ctx, python, script)
	client.Dir = b.work
	client.Env = append(b.environment(), "PATH="+onPath+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := client.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "'restored': ['"+notes+"']")
	require.Equal(t, "mine\n", b.read("notes.txt"))
}

// TestTheExampleOfAHook runs the hook as oinod would, with and without what it
// looks for.
func TestTheExampleOfAHook(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	script := filepath.Join(b.out, "hook")
	require.NoError(t, os.WriteFile(script, []byte(example(t, "sh")), 0o644))
	ask := func() (code int, said string) {
		hook := exec.Command("sh", script)
		hook.Dir = b.work
		out, err := hook.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), string(out)
		}
		require.NoError(t, err)
		return 0, string(out)
	}
	code, said := ask()
	require.Zero(t, code)
	require.Empty(t, said)
	b.write("build.lock", "")
	code, said = ask()
	require.Equal(t, 2, code)
	require.Equal(t, "a build is running\n", said)
}

// TestEveryMethodIsDocumented: what is served has a section with an example
// that uses it, and no section is about what is not served.
func TestEveryMethodIsDocumented(t *testing.T) {
	b := newBox(t)
	p := b.start()
	initialized := p.initialize(nil)
	require.Zero(t, p.exit())

	var result struct {
		AgentCapabilities struct {
			SessionCapabilities map[string]json.RawMessage `json:"sessionCapabilities"`
			Meta                struct {
				Oino struct {
					Methods []string       `json:"methods"`
					Limits  map[string]int `json:"limits"`
				} `json:"oino"`
			} `json:"_meta"`
		} `json:"agentCapabilities"`
	}
	require.NoError(t, json.Unmarshal(initialized, &result))
	served := append([]string{"initialize", "session/new", "session/load", "session/prompt"}, result.AgentCapabilities.Meta.Oino.Methods...)
	for capability := range result.AgentCapabilities.SessionCapabilities {
		if capability != "additionalDirectories" { // a param, no method
			served = append(served, "session/"+capability)
		}
	}

	documented := map[string]section{}
	for _, s := range protocolSections(t) {
		documented[s.title] = s
	}
	for _, method := range served {
		s, ok := documented[method]
		require.True(t, ok, "%s is served and has no section", method)
		require.Contains(t, strings.Join(s.examples, ""), fmt.Sprintf(`-> {"method":%q`, method), "no example uses %s", method)
	}
	told := strings.Fields("session/cancel $/cancel_request session/update session/request_permission _oino/session_before_fork _oino/session_fork _oino/event")
	method := regexp.MustCompile(`^(\$|session|_oino)/[a-z_/]+$`)
	for title := range documented {
		if method.MatchString(title) {
			require.Contains(t, append(served, told...), title, "a section about what is not served")
		}
	}
	data, err := os.ReadFile(filepath.Join("..", "docs", "protocol.md"))
	require.NoError(t, err)
	for limit := range result.AgentCapabilities.Meta.Oino.Limits {
		require.Contains(t, string(data), limit)
	}
}
