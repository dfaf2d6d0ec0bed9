package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/session"
)

// maxSettings bounds settings.json, in bytes. It is written by hand.
const maxSettings = 1 << 20

// settings is what <agentDir>/settings.json says, and the defaults for what
// it does not say:
//
//	{"hooks": {"session_before_fork": [{"command": ["/abs/prog", "arg"], "timeoutMs": 30000}],
//	           "session_fork": […]},
//	 "limits": {"maxCheckpoints": 100, "maxSnapshotBytes": 16777216, "maxMessageBytes": 67108864},
//	 "sessions": {"compressAfter": "24h"},
//	 "workspace": {"include": [], "exclude": [], "maxFiles": 200000, "maxBytes": 2147483648}}
//
// An unknown key is a warning: it may be a newer oinod's, or a slip. Under
// hooks it stops the start, and so does anything else that is not as above: a
// guard that is not asked, or a limit that does not hold, would be found too
// late.
type settings struct {
	hooks     []fork.Command // those before a fork first
	limits    session.Limits
	workspace workspaceSettings
	// compressAfter is how long nobody must have written to a log before it is
	// compressed; 0: never.
	compressAfter time.Duration
}

// workspaceSettings is which files of a tracked tree are covered, and how many.
type workspaceSettings struct {
	include, exclude []string // gitignore lines relative to each root
	maxFiles         int64
	maxBytes         int64
}

func defaultSettings() settings {
	return settings{
		limits:        session.DefaultLimits,
		workspace:     workspaceSettings{maxFiles: 200_000, maxBytes: 2 << 30},
		compressAfter: 24 * time.Hour,
	}
}

// handlers is the hooks as a Forker asks them, with the environment they run in.
func (s settings) handlers(env []string) []fork.Handler {
	out := make([]fork.Handler, len(s.hooks))
	for i, c := range s.hooks {
		c.Env = env
		out[i] = &c
	}
	return out
}

// readSettings reads settings.json of an agent directory. A missing one says
// nothing. warn hears of each unknown key. An error is one line that names
// the file and the place in it.
func readSettings(agentDir string, warn func(string)) (settings, error) {
	path := filepath.Join(agentDir, "settings.json")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return defaultSettings(), nil
	}
	if err != nil {
		return settings{}, fmt.Errorf("the settings cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() { // a FIFO would keep us waiting
		return settings{}, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() > maxSettings {
		return settings{}, fmt.Errorf("%s is larger than %d bytes", path, maxSettings)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return settings{}, fmt.Errorf("the settings cannot be read: %w", err)
	}
	s, unknown, err := parseSettings(data)
	for _, key := range unknown {
		warn(fmt.Sprintf("%s: unknown key %s", path, key))
	}
	if err != nil {
		return settings{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseSettings decodes a settings.json, and lists the keys that it does not know.
func parseSettings(data []byte) (settings, []string, error) {
	s := defaultSettings()
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return s, nil, located(data, err)
	}
	r := &settingsReader{}
	r.object("", whole, fields{
		"hooks": func(path string, v json.RawMessage) {
			r.object(path, v, fields{
				fork.BeforeFork: func(path string, v json.RawMessage) {
					s.hooks = append(s.hooks, r.commands(path, v, fork.BeforeFork)...)
				},
				fork.AfterFork: func(path string, v json.RawMessage) {
					s.hooks = append(s.hooks, r.commands(path, v, fork.AfterFork)...)
				},
			})
		},
		"limits": func(path string, v json.RawMessage) {
			maxCheckpoints := int64(s.limits.MaxCheckpoints)
			r.object(path, v, fields{
				"maxCheckpoints":   r.integer(&maxCheckpoints, 1, 1_000_000),
				"maxSnapshotBytes": r.integer(&s.limits.MaxSnapshotBytes, 1, 1<<40),
				"maxMessageBytes":  r.integer(&s.limits.MaxMessageBytes, 4<<10, 1<<30),
			})
			s.limits.MaxCheckpoints = int(maxCheckpoints)
		},
		"sessions": func(path string, v json.RawMessage) {
			r.object(path, v, fields{"compressAfter": r.age(&s.compressAfter)})
		},
		"workspace": func(path string, v json.RawMessage) {
			r.object(path, v, fields{
				"include":  r.strings(&s.workspace.include),
				"exclude":  r.strings(&s.workspace.exclude),
				"maxFiles": r.integer(&s.workspace.maxFiles, 1, 1_000_000_000),
				"maxBytes": r.integer(&s.workspace.maxBytes, 1, 1<<50),
			})
		},
	})
	return s, r.unknown, r.err
}

// fields says what reads the value of each key of an object.
type fields map[string]func(path string, v json.RawMessage)

// settingsReader walks a settings.json. It goes on after an unknown key, and
// keeps the first error. A path is how a person would name a place in the
// file: hooks.session_before_fork[0].command.
type settingsReader struct {
	unknown []string
	err     error
}

func (r *settingsReader) fail(path, format string, args ...any) {
	if r.err != nil {
		return
	}
	if path == "" {
		path = "the file"
	}
	r.err = fmt.Errorf("%s %s", path, fmt.Sprintf(format, args...))
}

// object passes each value of the object v to the function of its key.
func (r *settingsReader) object(path string, v json.RawMessage, known fields) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(v, &members); err != nil || members == nil {
		r.fail(path, "is %s, want an object", brief(v))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		at := strings.TrimPrefix(path+"."+keyName(key), ".")
		if read, ok := known[key]; ok {
			read(at, members[key])
		} else if strings.HasPrefix(path, "hooks") {
			r.fail(at, "is not known, want %s", strings.Join(slices.Sorted(maps.Keys(known)), " or "))
		} else {
			r.unknown = append(r.unknown, at)
		}
	}
}

// list passes each element of the array v to read.
func (r *settingsReader) list(path string, v json.RawMessage, read func(path string, v json.RawMessage)) {
	var elements []json.RawMessage
	if err := json.Unmarshal(v, &elements); err != nil || elements == nil {
		r.fail(path, "is %s, want an array", brief(v))
		return
	}
	for i, e := range elements {
		read(fmt.Sprintf("%s[%d]", path, i), e)
	}
}

// integer reads a whole number from least to most into to.
func (r *settingsReader) integer(to *int64, least, most int64) func(string, json.RawMessage) {
	return func(path string, v json.RawMessage) {
		var n *int64
		if err := json.Unmarshal(v, &n); err != nil || n == nil || *n < least || *n > most {
			r.fail(path, "is %s, want a whole number from %d to %d", brief(v), least, most)
			return
		}
		*to = *n
	}
}

// age reads a duration into to; "never" is 0.
func (r *settingsReader) age(to *time.Duration) func(string, json.RawMessage) {
	return func(path string, v json.RawMessage) {
		var s string
		err := json.Unmarshal(v, &s)
		if err == nil && s == "never" {
			*to = 0
			return
		}
		d, aerr := parseAge(s)
		if err != nil || aerr != nil {
			r.fail(path, `is %s, want a time as "24h" or "7d", or "never"`, brief(v))
			return
		}
		*to = d
	}
}

// strings reads an array of strings into to.
func (r *settingsReader) strings(to *[]string) func(string, json.RawMessage) {
	return func(path string, v json.RawMessage) {
		var out []string
		r.list(path, v, func(path string, v json.RawMessage) {
			var s *string
			if err := json.Unmarshal(v, &s); err != nil || s == nil {
				r.fail(path, "is %s, want a string", brief(v))
				return
			}
			out = append(out, *s)
		})
		*to = out
	}
}

// commands reads the hooks of one event.
func (r *settingsReader) commands(path string, v json.RawMessage, on string) []fork.Command {
	var out []fork.Command
	r.list(path, v, func(path string, v json.RawMessage) {
		c := fork.Command{On: on}
		timeout := fork.DefaultTimeout.Milliseconds()
		r.object(path, v, fields{
			"command":   r.strings(&c.Argv),
			"timeoutMs": r.integer(&timeout, 1, time.Hour.Milliseconds()),
		})
		c.Timeout = time.Duration(timeout) * time.Millisecond
		switch {
		case len(c.Argv) == 0:
			r.fail(path+".command", "is missing or empty, want the program and its arguments")
		case !filepath.IsAbs(c.Argv[0]):
			// Relative to what? It is started in a workspace, which must never
			// bring a hook.
			r.fail(path+".command[0]", "is %q, want an absolute path", c.Argv[0])
		case slices.ContainsFunc(c.Argv, func(s string) bool { return strings.Contains(s, "\x00") }):
			r.fail(path+".command", "holds a NUL, which no program can be given")
		}
		out = append(out, c)
	})
	return out
}

// keyName is key as a path shows it: quoted where it is no plain word, so that
// the path stays one line and readable.
func keyName(key string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !plain(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// brief is v as an error shows it.
func brief(v json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		return string(v)
	}
	if r := []rune(b.String()); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return b.String()
}

// located says where in data, as an editor counts, it stopped being JSON.
func located(data []byte, err error) error {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:min(max(int(syntax.Offset)-1, 0), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}
