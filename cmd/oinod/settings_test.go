package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/session"
)

func TestSettingsSayWhatTheySay(t *testing.T) {
	dir := t.TempDir()
	write := func(body string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "settings.json"), []byte(body), 0o600))
	}
	silent := func(msg string) { t.Errorf("unasked for: %s", msg) }

	s, err := readSettings(dir, silent)
	require.NoError(t, err)
	require.Equal(t, defaultSettings(), s, "a missing file says nothing")

	write(`{}`)
	s, err = readSettings(dir, silent)
	require.NoError(t, err)
	require.Equal(t, defaultSettings(), s)

	write(`{
		"hooks": {
			"session_fork": [{"command": ["/bin/after"]}],
			"session_before_fork": [{"command": ["/bin/a", "x y"], "timeoutMs": 1500}, {"command": ["/bin/b"]}]
		},
		"limits": {"maxCheckpoints": 1, "maxSnapshotBytes": 1, "maxMessageBytes": 4096},
		"sessions": {"compressAfter": "7d"},
		"workspace": {"include": ["!a"], "exclude": ["*.log", "b/"], "maxFiles": 3, "maxBytes": 4}
	}`)
	s, err = readSettings(dir, silent)
	require.NoError(t, err)
	require.Equal(t, settings{
		hooks: []fork.Command{
			{On: "session_before_fork", Argv: []string{"/bin/a", "x y"}, Timeout: 1500 * time.Millisecond},
			{On: "session_before_fork", Argv: []string{"/bin/b"}, Timeout: 30 * time.Second},
			{On: "session_fork", Argv: []string{"/bin/after"}, Timeout: 30 * time.Second},
		},
		limits:        session.Limits{MaxCheckpoints: 1, MaxSnapshotBytes: 1, MaxMessageBytes: 4096},
		workspace:     workspaceSettings{include: []string{"!a"}, exclude: []string{"*.log", "b/"}, maxFiles: 3, maxBytes: 4},
		compressAfter: 7 * 24 * time.Hour,
	}, s)

	handlers := s.handlers([]string{"A=1"})
	require.Len(t, handlers, 3)
	require.Equal(t, &fork.Command{On: "session_before_fork", Argv: []string{"/bin/b"}, Timeout: 30 * time.Second, Env: []string{"A=1"}}, handlers[1])
}

func TestSettingsThatAreNotRightAreRefusedByName(t *testing.T) {
	for body, want := range map[string]string{
		``:                                     "line 1, column 1: unexpected end of JSON input",
		"{\n \"limits\": {},\n}":               "line 3, column 1: invalid character '}' looking for beginning of object key string",
		`{} {}`:                                "line 1, column 4: invalid character '{' after top-level value",
		`[]`:                                   "the file is [], want an object",
		`null`:                                 "the file is null, want an object",
		`{"limits":null}`:                      "limits is null, want an object",
		`{"limits":{"maxCheckpoints":"many"}}`: `limits.maxCheckpoints is "many", want a whole number from 1 to 1000000`,
		`{"limits":{"maxCheckpoints":0}}`:      `limits.maxCheckpoints is 0, want a whole number from 1 to 1000000`,
		`{"limits":{"maxCheckpoints":1.5}}`:    `limits.maxCheckpoints is 1.5, want a whole number from 1 to 1000000`,
		`{"limits":{"maxCheckpoints":null}}`:   `limits.maxCheckpoints is null, want a whole number from 1 to 1000000`,
		`{"limits":{"maxCheckpoints":99999999999999999999}}`:                                       `limits.maxCheckpoints is 99999999999999999999, want a whole number from 1 to 1000000`,
		`{"limits":{"maxSnapshotBytes":-1}}`:                                                       `limits.maxSnapshotBytes is -1, want a whole number from 1 to 1099511627776`,
		`{"limits":{"maxMessageBytes":100}}`:                                                       `limits.maxMessageBytes is 100, want a whole number from 4096 to 1073741824`,
		`{"workspace":{"include":"a"}}`:                                                            `workspace.include is "a", want an array`,
		`{"workspace":{"exclude":["a",1]}}`:                                                        `workspace.exclude[1] is 1, want a string`,
		`{"workspace":{"maxFiles":true}}`:                                                          `workspace.maxFiles is true, want a whole number from 1 to 1000000000`,
		`{"hooks":[]}`:                                                                             `hooks is [], want an object`,
		`{"hooks":{"session_fork":{}}}`:                                                            `hooks.session_fork is {}, want an array`,
		`{"hooks":{"session_fork":["/bin/x"]}}`:                                                    `hooks.session_fork[0] is "/bin/x", want an object`,
		`{"hooks":{"session_fork":[{}]}}`:                                                          `hooks.session_fork[0].command is missing or empty, want the program and its arguments`,
		`{"hooks":{"session_fork":[{"command":"/bin/x"}]}}`:                                        `hooks.session_fork[0].command is "/bin/x", want an array`,
		`{"hooks":{"session_fork":[{"command":["x"]}]}}`:                                           `hooks.session_fork[0].command[0] is "x", want an absolute path`,
		`{"hooks":{"session_fork":[{"command":["/x","a\u0000"]}]}}`:                                `hooks.session_fork[0].command holds a NUL, which no program can be given`,
		`{"hooks":{"session_fork":[{"command":["/x"],"timeoutMs":0}]}}`:                            `hooks.session_fork[0].timeoutMs is 0, want a whole number from 1 to 3600000`,
		`{"hooks":{"session_fork":[{"command":["/x"]},{"command":[null]}]}}`:                       `hooks.session_fork[1].command[0] is null, want a string`,
		`{"hooks":{"session_before_forks":[]}}`:                                                    `hooks.session_before_forks is not known, want session_before_fork or session_fork`,
		`{"hooks":{"session_fork":[{"command":["/x"],"timeout":1}]}}`:                              `hooks.session_fork[0].timeout is not known, want command or timeoutMs`,
		`{"workspace":{"maxFiles":"` + "an endless word, an endless word, an endless word" + `"}}`: `workspace.maxFiles is "an endless word, an endless word, an en…, want a whole number from 1 to 1000000000`,
	} {
		_, _, err := parseSettings([]byte(body))
		require.EqualError(t, err, want, body)
	}
}

func TestUnknownKeysAreNamedInOneLineEach(t *testing.T) {
	_, unknown, err := parseSettings([]byte(`{"b":1,"a b":{},"limits":{"line\nbreak":1,"MaxCheckpoints":5},"hook":{}}`))
	require.NoError(t, err)
	require.Equal(t, []string{`"a b"`, `b`, `hook`, `limits.MaxCheckpoints`, `limits."line\nbreak"`}, unknown)
}

func TestVersionSaysWhatTheBuildKnows(t *testing.T) {
	for want, info := range map[string]debug.BuildInfo{
		"v1.2.3":             {Main: debug.Module{Version: "v1.2.3"}},
		"devel":              {Main: debug.Module{Version: "(devel)"}},
		"devel-0123456789ab": {Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}},
		"devel-01-dirty":     {Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "01"}, {Key: "vcs.modified", Value: "true"}}},
	} {
		require.Equal(t, want, versionOf(&info))
	}
}
