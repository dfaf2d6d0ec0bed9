package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// sessionCmds are what scripts do to sessions:
//
//	talk NAME       makes a session of two turns in the current directory and puts its id in $NAME
//	tear ID         cuts the last line of its log off and leaves 9 bytes of one
//	damage ID       flips a bit in the third line of its log
//	age DURATION    makes every log as old as that
var sessionCmds = map[string]func(*testscript.TestScript, bool, []string){
	"talk":   talk,
	"tear":   func(ts *testscript.TestScript, _ bool, args []string) { spoil(ts, args, tear) },
	"damage": func(ts *testscript.TestScript, _ bool, args []string) { spoil(ts, args, damage) },
	"age":    makeOld,
}

func talk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: talk name")
	}
	cwd := ts.MkAbs(".")
	cmd := exec.Command("oinod", "serve", "--agent-dir", ts.Getenv("OINO_AGENT_DIR"))
	cmd.Env = append(os.Environ(), "GORACE="+quickExit)
	cmd.Stderr = ts.Stderr()
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	answers := bufio.NewReader(out)
	call := func(method string, params map[string]any) map[string]any {
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		ts.Check(err)
		_, err = in.Write(append(line, '\n'))
		ts.Check(err)
		for {
			line, err := answers.ReadBytes('\n')
			ts.Check(err)
			var m struct {
				ID     int            `json:"id"`
				Result map[string]any `json:"result"`
				Error  any            `json:"error"`
			}
			ts.Check(json.Unmarshal(line, &m))
			if m.Error != nil {
				ts.Fatalf("%s: %v", method, m.Error)
			}
			if m.ID == 1 {
				return m.Result
			}
		}
	}
	id := call("session/new", map[string]any{"cwd": cwd, "mcpServers": []any{}})["sessionId"].(string)
	text := func(s string) []any { return []any{map[string]any{"type": "text", "text": s}} }
	ts.Check(os.WriteFile(filepath.Join(cwd, "a"), []byte("v0\n"), 0o644))
	os.Remove(filepath.Join(cwd, "new"))
	call("session/prompt", map[string]any{"sessionId": id, "prompt": text("make the tests pass")})
	call("_oino/write", map[string]any{"sessionId": id, "path": filepath.Join(cwd, "a"), "content": "v1\n"})
	call("_oino/write", map[string]any{"sessionId": id, "path": filepath.Join(cwd, "new"), "content": "new\n"})
	call("_oino/append", map[string]any{"sessionId": id, "entries": []any{map[string]any{"role": "assistant", "content": "I did it."}}})
	call("session/prompt", map[string]any{"sessionId": id, "prompt": text("thanks \x1b[31m")})
	call("_oino/append", map[string]any{"sessionId": id, "entries": []any{map[string]any{"role": "assistant", "content": "Any time."}}})
	call("_oino/turn_end", map[string]any{"sessionId": id})
	ts.Check(in.Close())
	ts.Check(cmd.Wait())
	ts.Setenv(args[0], id)
}

func logFile(ts *testscript.TestScript, id string) string {
	names, err := filepath.Glob(filepath.Join(ts.Getenv("OINO_AGENT_DIR"), "sessions", "*", "*_"+id+".jsonl"))
	ts.Check(err)
	if len(names) != 1 {
		ts.Fatalf("logs of session %s: %v", id, names)
	}
	return names[0]
}

func spoil(ts *testscript.TestScript, args []string, how func([]byte) []byte) {
	if len(args) != 1 {
		ts.Fatalf("usage: tear|damage id")
	}
	name := logFile(ts, args[0])
	log, err := os.ReadFile(name)
	ts.Check(err)
	ts.Check(os.WriteFile(name, how(log), 0o600))
}

func tear(log []byte) []byte { return append(log, `{"type":"`...) }

func damage(log []byte) []byte {
	third := bytes.Join(bytes.SplitAfterN(log, []byte("\n"), 4)[:2], nil)
	log[len(third)+20] ^= 1
	return log
}

func makeOld(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: age duration")
	}
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	logs, err := filepath.Glob(filepath.Join(ts.Getenv("OINO_AGENT_DIR"), "sessions", "*", "*.jsonl*"))
	ts.Check(err)
	for _, name := range logs {
		ts.Check(os.Chtimes(name, time.Now(), time.Now().Add(-d)))
	}
}

func TestAges(t *testing.T) {
	for s, want := range map[string]time.Duration{"30d": 720 * time.Hour, "2w": 336 * time.Hour, "12h": 12 * time.Hour, "90m": 90 * time.Minute} {
		d, err := parseAge(s)
		require.NoError(t, err, s)
		require.Equal(t, want, d)
		var a age
		require.NoError(t, a.Set(s))
		require.NotEmpty(t, a.String())
	}
	for _, s := range []string{"", "0", "0d", "-1d", "30", "d", "1.5d", "999999999d", "-5h", "soon"} {
		_, err := parseAge(s)
		require.ErrorContains(t, err, fmt.Sprintf("%q", s))
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 3 << 41: "6.0 TiB"} {
		require.Equal(t, want, size(n))
	}
}

// What was said can do nothing to the terminal that shows it.
func TestTextIsShownAndNotObeyed(t *testing.T) {
	require.Equal(t, "a b [31mc", oneLine("a\nb\x1b[31mc"))
	require.Equal(t, []string{"\ta ☃", "", "b�[31m�c"}, lines("\ta ☃ \r\n\nb\x1b[31m\rc\n\n"))
	require.Equal(t, []string{""}, lines(""))
}

func TestABarIsForTerminals(t *testing.T) {
	var out strings.Builder
	b := newBar(&out, "reading")
	b.show(1, 2)
	b.clear()
	require.Empty(t, out.String())
	b.out = &out
	b.show(0, 0)
	b.show(1, 2)
	b.show(1, 2)
	require.Equal(t, "\rreading ["+strings.Repeat(" ", 30)+"]   0%\rreading ["+strings.Repeat("#", 15)+strings.Repeat(" ", 15)+"]  50%", out.String())
	b.clear()
	require.True(t, strings.HasSuffix(out.String(), "\r"))
}
