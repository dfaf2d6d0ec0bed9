//go:build unix

package fork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script writes a program of the user's and returns its path.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}

func TestACommandsEndIsItsAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		body   string
		cancel bool
		reason string // a part of it; %s is the command
	}{
		"silent":               {body: "cat >/dev/null"},
		"does not read":        {body: "exit 0"},
		"closes stdin":         {body: "exec <&-; exit 0"},
		"white space":          {body: "printf ' \\n\\t\\n'"},
		"empty object":         {body: "echo '{}'"},
		"says go on":           {body: `echo '{"cancel":false,"reason":"looked at it"}'`},
		"unknown fields":       {body: `echo '{"cancel":false,"note":1}'`},
		"names are exact":      {body: `echo '{"CANCEL":true,"Reason":"no"}'`},
		"also beside them":     {body: `echo '{"cancel":false,"Cancel":true}'`},
		"stderr is no answer":  {body: "echo careful >&2"},
		"exit 0 left somebody": {body: "sleep 30 & echo '{}'"},

		"says cancel":         {body: `echo '{"cancel":true,"reason":"dirty tree"}'`, cancel: true, reason: "dirty tree"},
		"names are exact too": {body: `echo '{"cancel":true,"reason":"dirty tree","Cancel":false,"REASON":1}'`, cancel: true, reason: "dirty tree"},
		"cancel, no reason":   {body: `echo '{"cancel":true}'`, cancel: true, reason: "the session_before_fork hook %s cancelled and gave no reason"},
		"exit 2":              {body: "cat >/dev/null; echo '  dirty tree' >&2; exit 2", cancel: true, reason: "dirty tree"},
		"exit 2, not UTF-8":   {body: `printf 'dirty \377tree' >&2; exit 2`, cancel: true, reason: "dirty \uFFFDtree"},
		"exit 2, silent":      {body: "exit 2", cancel: true, reason: "the session_before_fork hook %s cancelled (exit 2) and gave no reason"},
		"exit 2, left one":    {body: "echo no >&2; sleep 30 & exit 2", cancel: true, reason: "no"},
		"exit 2 beats output": {body: "echo '{}'; echo no >&2; exit 2", cancel: true, reason: "no"},

		"exit 1":           {body: "echo broken >&2; exit 1", cancel: true, reason: "hook %s failed: exit status 1: broken"},
		"exit 1, JSON":     {body: "echo '{}'; exit 1", cancel: true, reason: "hook %s failed: exit status 1"},
		"signal":           {body: "kill -9 $$", cancel: true, reason: "hook %s failed: signal: killed"},
		"no JSON":          {body: "echo hello", cancel: true, reason: "hook %s answered something else than a JSON object {cancel, reason}: not JSON"},
		"an array":         {body: "echo '[]'", cancel: true, reason: "not an object"},
		"null":             {body: "echo null", cancel: true, reason: "not an object"},
		"two answers":      {body: "echo '{}{}'", cancel: true, reason: "hook %s answered something else"},
		"cut off":          {body: `echo '{"cancel":fal'`, cancel: true, reason: "hook %s answered something else"},
		"a word for a yes": {body: `echo '{"cancel":"yes"}'`, cancel: true, reason: "hook %s answered something else"},
		"babble":           {body: "yes", cancel: true, reason: "hook %s printed more than 64 KiB"},
		"babble on stderr": {body: "yes >&2", cancel: true, reason: "hook %s printed more than 64 KiB"},
		"babble, exit 0":   {body: "head -c 65537 /dev/zero", cancel: true, reason: "hook %s printed more than 64 KiB"},
		"babble, exit 2":   {body: "head -c 65537 /dev/zero >&2; exit 2", cancel: true, reason: "hook %s printed more than 64 KiB"},
		"babble, no SIGPIPE": {body: "trap '' PIPE; while :; do head -c 65537 /dev/zero 2>/dev/null; done",
			cancel: true, reason: "hook %s printed more than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Command{On: BeforeFork, Argv: []string{script(t, tt.body)}}
			begun := time.Now()
			answer, err := ask(t.Context(), []Handler{c}, Event{Cwd: t.TempDir()})
			require.NoError(t, err)
			require.Equal(t, tt.cancel, answer.Cancel, answer.Reason)
			require.Contains(t, answer.Reason, strings.ReplaceAll(tt.reason, "%s", c.Argv[0]))
			require.Less(t, time.Since(begun), DefaultTimeout/2)
		})
	}
}

func TestAnAnswerMayFillTheWholeOutput(t *testing.T) {
	room := MaxOutput - len(`{"cancel":true,"reason":""}`)
	c := &Command{On: BeforeFork, Argv: []string{script(t, fmt.Sprintf(
		`printf '{"cancel":true,"reason":"'; head -c %d /dev/zero | tr '\0' x; printf '"}'`, room))}}
	answer, err := c.SessionBeforeFork(t.Context(), Event{Cwd: t.TempDir()})
	require.NoError(t, err)
	require.True(t, answer.Cancel)
	require.Len(t, answer.Reason, room)
}

func TestAProgramThatCannotBeStartedCancels(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
	gone := filepath.Join(t.TempDir(), "gone")
	for name, tt := range map[string]struct {
		program, cwd string
		reason       string
	}{
		"missing":        {"/no/such/program", t.TempDir(), "the session_before_fork hook /no/such/program cannot be started: no such file or directory"},
		"not executable": {plain, t.TempDir(), "hook " + plain + " cannot be started: permission denied"},
		"a directory":    {t.TempDir(), t.TempDir(), "cannot be started: "},
		"no directory":   {script(t, ""), gone, "cannot be started in the session's directory: stat " + gone + ": no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Command{On: BeforeFork, Argv: []string{tt.program}}
			answer, err := ask(t.Context(), []Handler{c}, Event{Cwd: tt.cwd})
			require.NoError(t, err)
			require.True(t, answer.Cancel)
			require.Contains(t, answer.Reason, tt.reason)
		})
	}
}

func TestACommandGetsTheEventItsDirectoryAndItsArguments(t *testing.T) {
	cwd := t.TempDir()
	id := "e1"
	e := Event{Type: BeforeFork, SessionID: "s1", EntryID: &id, Position: Before, Conversation: "fork", Cwd: cwd, Text: "a <b>\n"}
	c := &Command{
		On:   BeforeFork,
		Argv: []string{script(t, `cat >event; printf '%s|' "$@" >args; printf %s "$WHO" >who; pwd -P >pwd`), "a b", "$HOME", "*"},
		Env:  []string{"PATH=" + os.Getenv("PATH"), "WHO=me"},
	}
	answer, err := c.SessionBeforeFork(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, Answer{}, answer)

	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(cwd, name))
		require.NoError(t, err)
		return string(b)
	}
	var got Event
	require.Equal(t, 1, strings.Count(read("event"), "\n"), "one line")
	require.NoError(t, json.Unmarshal([]byte(read("event")), &got))
	require.Equal(t, e, got)
	require.Equal(t, "a b|$HOME|*|", read("args"), "no shell looks at the arguments")
	require.Equal(t, "me", read("who"))
	real, err := filepath.EvalSymlinks(cwd)
	require.NoError(t, err)
	require.Equal(t, real+"\n", read("pwd"))
}

func TestABigEventDoesNotBlockACommandThatDoesNotRead(t *testing.T) {
	c := &Command{On: BeforeFork, Argv: []string{script(t, "exit 0")}}
	answer, err := c.SessionBeforeFork(t.Context(), Event{Cwd: t.TempDir(), Text: strings.Repeat("x", 4<<20)})
	require.NoError(t, err)
	require.Equal(t, Answer{}, answer)
}

// A hook that hangs is ended with everything it started: the pipe that all of
// them hold open ends.
func TestATimeOutEndsTheWholeProcessGroup(t *testing.T) {
	for name, body := range map[string]string{
		"a child it waits for":  "sh -c 'echo up >&9; sleep 1000; :'; :",
		"a child in background": "sh -c 'echo up >&9; sleep 1000; :' & wait",
		"signals ignored":       "trap '' TERM INT HUP; echo up >&9; while :; do sleep 1000; done",
	} {
		t.Run(name, func(t *testing.T) {
			cwd := t.TempDir()
			fifo := filepath.Join(cwd, "fifo")
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			// Not blocking, so that there is a reader before there is a writer.
			r, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			require.NoError(t, err)
			defer r.Close()

			c := &Command{On: BeforeFork, Timeout: time.Second, Argv: []string{script(t, "exec 9>fifo\n"+body)}}
			answer, err := ask(t.Context(), []Handler{c}, Event{Cwd: cwd})
			require.NoError(t, err)
			require.Equal(t, Answer{Cancel: true, Reason: "the session_before_fork hook " + c.Argv[0] + " did not end within 1s"}, answer)

			require.NoError(t, r.SetReadDeadline(time.Now().Add(10*time.Second)))
			held, err := io.ReadAll(r)
			require.NoError(t, err, "somebody still holds the pipe")
			require.Equal(t, "up\n", string(held))
		})
	}
}

func TestACancelledRequestEndsItsCommand(t *testing.T) {
	cwd := t.TempDir()
	fifo := filepath.Join(cwd, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	c := &Command{On: BeforeFork, Argv: []string{script(t, "echo up >fifo; sleep 1000; :")}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { // ends with ask, which the cancel ends
		_, err := ask(ctx, []Handler{c}, Event{Cwd: cwd})
		done <- err
	}()
	_, err := os.ReadFile(fifo) // until it runs
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestACommandIsStartedForItsOwnEventOnly(t *testing.T) {
	cwd := t.TempDir()
	argv := []string{script(t, "cat >>ran; echo hello")}
	before, after := &Command{On: BeforeFork, Argv: argv}, &Command{On: AfterFork, Argv: argv}

	answer, err := after.SessionBeforeFork(t.Context(), Event{Cwd: cwd})
	require.NoError(t, err)
	require.Equal(t, Answer{}, answer)
	before.SessionForked(t.Context(), Forked{Cwd: cwd})
	require.NoFileExists(t, filepath.Join(cwd, "ran"))
	require.False(t, asked(after))
	require.True(t, asked(before))

	require.NoError(t, after.tell(t.Context(), Forked{Type: AfterFork, SessionID: "s1", Cwd: cwd, NewSessionID: "s2"}))
	ran, err := os.ReadFile(filepath.Join(cwd, "ran"))
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"session_fork","sessionId":"s1","entryId":null,"position":"","conversation":"","cwd":"`+cwd+`","newSessionId":"s2"}`, string(ran))
}

func TestWhatACommandDoesAfterAForkIsReported(t *testing.T) {
	c := &Command{On: AfterFork, Argv: []string{script(t, "echo no network >&2; exit 3")}}
	err := c.tell(t.Context(), Forked{Cwd: t.TempDir()})
	require.EqualError(t, err, "the session_fork hook "+c.Argv[0]+" failed: exit status 3: no network")
	require.False(t, errors.Is(err, context.Canceled))
}
