package workspace

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// childEnv makes the test binary a process that captures: its value is the
// agent directory, the workspace, the session and how many captures, by newlines.
const childEnv = "WORKSPACE_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(child(strings.Split(job, "\n")))
	}
	os.Exit(m.Run())
}

// child turns lines of standard input into captures, after an edit of a file
// of its own, and says each mark.
func child(job []string) int {
	agent, dir, session := job[0], job[1], job[2]
	t := &failer{}
	a := openAgentDir(t, agent, nil)
	w, err := a.store.Open(session, []string{dir})
	require.NoError(t, err)
	in := bufio.NewScanner(os.Stdin)
	for n := 0; in.Scan(); n++ {
		put(t, dir, map[string]string{session: fmt.Sprint(n)})
		c, err := w.Capture(context.Background(), CaptureOptions{})
		require.NoError(t, err)
		line, err := json.Marshal(c.Mark)
		require.NoError(t, err)
		fmt.Println(string(line))
		if in.Text() == "hang" { // until it is killed, holding the lock
			_ = w.Claim(context.Background(), func() ([]Claim, error) {
				fmt.Println("holding")
				select {}
			})
		}
	}
	require.NoError(t, w.Close())
	a.close()
	return 0
}

// failer is a testing.TB outside of a test.
type failer struct{ testing.TB }

func (*failer) Helper()        {}
func (*failer) Cleanup(func()) {}
func (*failer) FailNow()       { os.Exit(1) }
func (*failer) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format, args...)
}

// process is a child.
type process struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func start(t *testing.T, agent, dir, session string) *process {
	t.Helper()
	r, in, err := os.Pipe()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), in: in}
	p.cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{agent, dir, session}, "\n"))
	p.cmd.Stdin, p.cmd.Stderr = r, os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	r.Close()
	t.Cleanup(func() { in.Close(); p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

func (p *process) capture(t *testing.T, word string) Mark {
	t.Helper()
	_, err := fmt.Fprintln(p.in, word)
	require.NoError(t, err)
	require.True(t, p.out.Scan(), "the process said nothing")
	var m Mark
	require.NoError(t, json.Unmarshal(p.out.Bytes(), &m))
	return m
}

// Processes that capture one tree at the same time take turns: each of their
// marks is a moment of the tree, and their journal is one.
func TestProcessesCaptureOneTree(t *testing.T) {
	agent, dir := t.TempDir(), t.TempDir()
	for i := range 200 {
		put(t, dir, map[string]string{fmt.Sprintf("d%d/f%d", i%10, i): fmt.Sprint(i)})
	}
	const processes, turns = 4, 8
	marks := make([][]Mark, processes)
	var all sync.WaitGroup
	for i := range processes {
		p := start(t, agent, dir, fmt.Sprintf("s%d", i))
		all.Go(func() {
			for range turns {
				marks[i] = append(marks[i], p.capture(t, "go"))
			}
			p.in.Close()
			require.NoError(t, p.cmd.Wait())
		})
	}
	all.Wait()
	a := openAgentDir(t, agent, nil)
	seqs := map[uint64]bool{}
	for i := range processes {
		name := fmt.Sprintf("s%d", i)
		w := a.open(t, name, dir)
		for n, m := range marks[i] {
			require.False(t, seqs[m[0].Seq], "a number for two captures")
			seqs[m[0].Seq] = true
			s := statesOf(t, w, m, name, "d1/f1", "none")
			content, err := a.blobs.Get(s[0].Digest, 0)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(n), string(content))
			require.Equal(t, []checkpoints.Kind{checkpoints.File, checkpoints.Absent}, []checkpoints.Kind{s[1].Kind, s[2].Kind})
			if n > 0 {
				require.Contains(t, changes(t, w, marks[i][n-1], m), told{name, checkpoints.File, checkpoints.File})
			}
		}
	}
	require.Len(t, seqs, processes*turns)
}

func TestAKilledProcessBlocksNobody(t *testing.T) {
	agent, dir := t.TempDir(), t.TempDir()
	put(t, dir, map[string]string{"a": "1"})
	p := start(t, agent, dir, "killed")
	mark := p.capture(t, "hang")
	require.True(t, p.out.Scan())
	require.Equal(t, "holding", p.out.Text())
	a := openAgentDir(t, agent, nil)
	w := a.open(t, "other", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Capture(ctx, CaptureOptions{})
	require.ErrorIs(t, err, context.Canceled, "it is held, and whoever waits can give up")
	require.NoError(t, p.cmd.Process.Kill())
	p.cmd.Wait()
	captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"a": "2"})

	// The killed one's session goes on where it was.
	again := a.open(t, "killed", dir)
	c := captured(t, again, CaptureOptions{})
	require.Equal(t, []told{{"a", checkpoints.File, checkpoints.File}}, changes(t, again, mark, c.Mark))
}

// Sessions of one process capture, claim and ask at the same time.
func TestSessionsOfOneProcess(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"a": "1", "d/b": "1"})
	a := onDisk(disktest.New(), func(c *Config) {})
	a.store.compact = 3000
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			name := fmt.Sprintf("s%d", i)
			w, err := a.store.Open(name, []string{dir, filepath.Join(dir, "d")})
			require.NoError(t, err)
			defer w.Close()
			var last Mark
			for n := range 6 {
				require.NoError(t, w.Claim(t.Context(), func() ([]Claim, error) {
					put(t, dir, map[string]string{name: fmt.Sprint(n)})
					return []Claim{{Path: filepath.Join(dir, name), Before: checkpoints.State{Kind: checkpoints.Absent}, After: checkpoints.State{Kind: checkpoints.Absent}}}, nil
				}))
				c, err := w.Capture(t.Context(), CaptureOptions{Begin: true, End: true})
				require.NoError(t, err)
				if last != nil {
					all, err := w.Changes(t.Context(), last, c.Mark)
					require.NoError(t, err)
					require.NotEmpty(t, all)
					require.NoError(t, w.Release(t.Context(), c.Mark))
				}
				last = c.Mark
			}
		})
	}
	all.Wait()
	require.Empty(t, a.store.trees, "nobody uses a tree any more")
}
