package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// quickExit is GORACE for children: under the race detector each would sleep
// for a second when it exits.
const quickExit = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"oinod": main})
}

// leakChecked runs the tests and then looks for goroutines that they left.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", quickExit)
			// Whoever runs the tests may have settings of their own.
			e.Setenv("OINO_AGENT_DIR", "")
			e.Setenv("OINO_LOG", "")
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			if err := os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o755); err != nil {
				return err
			}
			e.Setenv("TMPDIR", filepath.Join(e.WorkDir, "tmp"))
			if err := os.MkdirAll(filepath.Join(e.WorkDir, "tmp"), 0o755); err != nil {
				return err
			}
			return readmeSession(filepath.Join(e.WorkDir, "readme.sh"))
		},
		Cmds: scriptCmds(),
	})
}

// scriptCmds are our own commands of scripts.
func scriptCmds() map[string]func(*testscript.TestScript, bool, []string) {
	cmds := map[string]func(*testscript.TestScript, bool, []string){"exits": exits}
	maps.Copy(cmds, sessionCmds)
	return cmds
}

// exits CODE PROGRAM ARGS… runs a program that must exit with CODE; stdout and
// stderr can be matched afterwards as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit %d, want %s", code, args[0])
	}
}

// readmeSession writes the session that the README lets people paste to path,
// so that a script runs it.
func readmeSession(path string) error {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		return err
	}
	m := regexp.MustCompile("(?s)```sh\n(S=.*?)```").FindSubmatch(readme)
	if m == nil {
		return fmt.Errorf("the README has no session to paste: a sh block that starts with S=")
	}
	return os.WriteFile(path, m[1], 0o644)
}

// served is a running serve that has answered initialize.
func served(t *testing.T) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command("oinod", "serve", "--agent-dir", t.TempDir())
	cmd.Env = append(os.Environ(), "GORACE="+quickExit)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	t.Cleanup(func() { watchdog.Stop() })
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`+"\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, `{`) && strings.Contains(line, `"protocolVersion":1`), line)
	return cmd, in
}

func TestASignalEndsServeInGoodOrder(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, _ := served(t) // its stdin stays open
			require.NoError(t, cmd.Process.Signal(sig))
			require.NoError(t, cmd.Wait(), "exit 0")
		})
	}
}

func TestTheEndOfInputEndsServe(t *testing.T) {
	cmd, in := served(t)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait(), "exit 0")
}

// A client that is gone is an exit, not a death in the middle of work by SIGPIPE.
func TestAClientThatClosedStdoutIsAnError(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	cmd := exec.Command("oinod", "serve", "--agent-dir", t.TempDir())
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}` + "\n")
	cmd.Stdout = w
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err = cmd.Run()
	w.Close()
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%v, %s", err, stderr.String())
	require.Regexp(t, `^oinod: the client is gone: .*\n$`, stderr.String())
}
