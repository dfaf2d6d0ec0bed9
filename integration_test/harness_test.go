//go:build unix

// Package integration drives the built oinod as a client does: a child
// process, one JSON object a line, a workspace and an agent directory of its
// own. It knows nothing of the code but what the wire and the disk show.
//
// What a user would do and see is written down as dialogues: txtar files in
// testdata, whose small language is described in dialogue_test.go. What takes
// a loop, a clock or several processes (kills, floods, real clients) is a Go
// test.
//
// Every file here ends in _test.go, so that neither this package nor what it
// imports is part of an ordinary build.
package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience is how long a test waits for what must happen. It is no measure of
// speed: it only turns a hang into a failure.
const patience = 2 * time.Minute

// nobody is whom a child runs as where permissions must count and the tests
// run as root, to whom they do not.
const nobody = 65534

func TestMain(m *testing.M) {
	// A test here mostly waits, for a disk or another process: more of them
	// than there are processors can do so at once.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		parallel.Value.Set(strconv.Itoa(4 * runtime.GOMAXPROCS(0)))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if builtIn != "" {
			os.RemoveAll(builtIn)
		}
		os.Exit(code)
	}))
}

// builtIn is the temporary directory that holds the binary, once there is one.
var builtIn string

// binary builds oinod, once a run.
var binary = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("OINO_BINARY"); given != "" {
		_, err := os.Stat(given) // also tells the test cache that it matters
		return given, err
	}
	if err := noteSources(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "oinod-built-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	if err := os.Chmod(dir, 0o755); err != nil { // for children that run as nobody
		return "", err
	}
	args := []string{"build", "-o", filepath.Join(dir, "oinod")}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./cmd/oinod")...)
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(build.Args[1:], " "), err, out)
	}
	return filepath.Join(dir, "oinod"), nil
})

// noteSources looks at every source file that the binary is built from. The
// go command reruns a cached test when a file that the test itself opened has
// changed; what its child, the compiler, opened does not count.
func noteSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "..":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") || d.Name() == "go.mod":
			_, err := os.Stat(path)
			return err
		}
		return nil
	})
}

// box is the scratch area of one test.
type box struct {
	t    testing.TB
	root string
	work string // the workspace, there and empty
	// agent is the agent directory, not there: oinod makes it.
	agent string
	home  string
	out   string // a directory outside of everything
	// unprivileged makes children run as nobody where the test runs as root.
	unprivileged bool
	env          []string // more of the environment of children, last
	talk         talk
}

func newBox(t testing.TB) *box {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	b := &box{t: t, root: root, work: filepath.Join(root, "work"), agent: filepath.Join(root, "agent"),
		home: filepath.Join(root, "home"), out: filepath.Join(root, "out")}
	for _, dir := range []string{b.work, b.home, b.out} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.talk.String())
		}
	})
	return b
}

// dropPrivileges makes the box's children run as somebody to whom
// permissions apply.
func (b *box) dropPrivileges() {
	b.t.Cleanup(b.openAll)
	if os.Getuid() != 0 {
		return
	}
	b.unprivileged = true
	for _, dir := range []string{b.root, b.work, b.home, b.out} {
		b.own(dir)
	}
	require.NoError(b.t, os.Chmod(filepath.Dir(b.root), 0o755))
}

// openAll makes every directory of the box writable, so that it can be removed.
func (b *box) openAll() {
	filepath.WalkDir(b.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o755)
		}
		return nil
	})
}

// own gives a path to the one whom children run as.
func (b *box) own(path string) {
	if b.unprivileged {
		require.NoError(b.t, os.Lchown(path, nobody, nobody))
	}
}

// path is an absolute path in the workspace.
func (b *box) path(rel string) string { return filepath.Join(b.work, rel) }

func (b *box) write(rel, content string) string {
	b.t.Helper()
	path := b.path(rel)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func (b *box) read(rel string) string {
	b.t.Helper()
	data, err := os.ReadFile(b.path(rel))
	require.NoError(b.t, err)
	return string(data)
}

// environment is the test's own without what could lead git or oinod
// elsewhere.
func (b *box) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GIT_") || strings.HasPrefix(kv, "OINO_") || strings.HasPrefix(kv, "HOME=")
	})
	return append(append(env, "HOME="+b.home, "OINO_AGENT_DIR="+b.agent), b.env...)
}

// process is one oinod, and all that it has said so far.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	talk *talk

	writing sync.Mutex
	nextID  int

	mu      sync.Mutex
	seen    []message
	answers map[string]int // id as JSON → index in seen
	grown   chan struct{}  // closed and replaced when seen grows
	fault   string         // the first thing on stdout that is no message

	killed bool
	exited chan struct{} // closed when it has ended and all it said is in seen
	code   int           // its exit code, once exited
}

// message is anything that oinod says.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *wireError      `json:"error"`

	raw []byte
}

// wireError is an error on the wire.
type wireError struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Data    errorData `json:"data"`
}

// errorData is an object; of an agent's own error it may be anything.
type errorData map[string]any

func (d *errorData) UnmarshalJSON(b []byte) error {
	var object map[string]any
	if len(b) > 0 && b[0] == '{' {
		if err := json.Unmarshal(b, &object); err != nil {
			return err
		}
	}
	*d = object
	return nil
}

func (e *wireError) Error() string { return fmt.Sprintf("%d %s %v", e.Code, e.Message, e.Data) }

// kind is the stable word of an error, "" for none.
func (e *wireError) kind() string {
	kind, _ := e.Data["kind"].(string)
	return kind
}

// errEnded is what a request gets whose process ended before it answered.
var errEnded = errors.New("the process ended without an answer")

// start starts an oinod. It does not say initialize.
func (b *box) start(args ...string) *process {
	b.t.Helper()
	return b.startNamed("", args...)
}

func (b *box) startNamed(name string, args ...string) *process {
	b.t.Helper()
	bin, err := binary()
	require.NoError(b.t, err)
	if len(args) == 0 {
		args = []string{"serve"}
	}
	return b.startProgram(name, append([]string{bin}, args...))
}

// startProgram starts anything that speaks as oinod does.
func (b *box) startProgram(name string, argv []string) *process {
	b.t.Helper()
	p := &process{t: b.t, name: name, talk: &b.talk, answers: map[string]int{}, grown: make(chan struct{}), exited: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = b.root
	p.cmd.Env = b.environment()
	p.cmd.Stderr = &stderrTo{talk: &b.talk, name: name}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if b.unprivileged {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(b.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, p.cmd.Start())
	go p.listen(out) // ends with the process, for which the clean-up waits
	b.t.Cleanup(func() {
		p.kill()
		require.Empty(b.t, p.stdoutFault(), "stdout carries messages and nothing else")
	})
	return p
}

// serve starts an oinod and says initialize.
func (b *box) serve() *process {
	b.t.Helper()
	p := b.start()
	p.initialize(nil)
	return p
}

// initialize says initialize with the capabilities (nil: none).
func (p *process) initialize(capabilities any) json.RawMessage {
	p.t.Helper()
	if capabilities == nil {
		capabilities = map[string]any{}
	}
	return p.call("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": capabilities,
		"clientInfo": map[string]any{"name": "integration", "version": "0"}})
}

// listen takes in what the process says until it says no more.
func (p *process) listen(out io.Reader) {
	r := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			// A process that was killed may have been in the middle of a line.
			p.take(line, err == nil || !p.wasKilled())
		}
		if err != nil {
			break
		}
	}
	p.cmd.Wait()
	p.mu.Lock()
	p.code = p.cmd.ProcessState.ExitCode()
	p.mu.Unlock()
	close(p.exited)
}

// take keeps a line that the process said.
func (p *process) take(line []byte, strict bool) {
	p.talk.add(p.name, "<-", string(line))
	m, err := parseMessage(line)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if strict && p.fault == "" {
			p.fault = fmt.Sprintf("%v: %.300q", err, line)
		}
		return
	}
	if m.Method == "" {
		if _, twice := p.answers[string(m.ID)]; twice && string(m.ID) != "null" && p.fault == "" {
			p.fault = fmt.Sprintf("a second answer to id %s: %.300q", m.ID, line)
		}
		p.answers[string(m.ID)] = len(p.seen)
	}
	p.seen = append(p.seen, m)
	close(p.grown)
	p.grown = make(chan struct{})
}

// parseMessage reads a line strictly: a client may be as strict.
func parseMessage(line []byte) (message, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return message{}, fmt.Errorf("no JSON object: %w", err)
	}
	has := func(key string) bool { _, ok := fields[key]; return ok }
	m := message{raw: line}
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("no JSON-RPC message: %w", err)
	}
	m.ID = fields["id"] // also where it is null
	switch {
	case string(fields["jsonrpc"]) != `"2.0"`:
		return message{}, errors.New(`no "jsonrpc":"2.0"`)
	case line[len(line)-1] != '\n':
		return message{}, errors.New("the line has no end")
	case has("method") && (has("result") || has("error")):
		return message{}, errors.New("both a request and an answer")
	case !has("method") && has("result") == has("error"):
		return message{}, errors.New("neither a request nor an answer, or result and error at once")
	case !has("method") && !has("id"):
		return message{}, errors.New("an answer without id")
	}
	return m, nil
}

// send sends one line as it is.
func (p *process) send(line []byte) error {
	p.talk.add(p.name, "->", string(line))
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.in.Write(append(line, '\n'))
	return err
}

// ask sends a request and returns its id without waiting for the answer.
func (p *process) ask(method string, params any) (id string, err error) {
	p.writing.Lock()
	p.nextID++
	id = fmt.Sprint(p.nextID)
	p.writing.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method, "params": params})
	if err != nil {
		return "", err
	}
	return id, p.send(line)
}

// wait waits for the answer to a request. A refusal is a *wireError.
func (p *process) wait(id string) (json.RawMessage, error) {
	m, _, err := p.await(func(int, message) bool { return false }, id, 0)
	switch {
	case err != nil:
		return nil, err
	case m.Error != nil:
		return nil, m.Error
	}
	return m.Result, nil
}

// await waits for the answer to id, or else for the first message from index
// from on that is wanted. It returns the message's index.
func (p *process) await(wanted func(int, message) bool, id string, from int) (message, int, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		if i, ok := p.answers[id]; ok {
			defer p.mu.Unlock()
			return p.seen[i], i, nil
		}
		for ; from < len(p.seen); from++ {
			if wanted(from, p.seen[from]) {
				defer p.mu.Unlock()
				return p.seen[from], from, nil
			}
		}
		grown := p.grown
		p.mu.Unlock()
		select {
		case <-grown:
			continue
		case <-p.exited:
			p.mu.Lock()
			more := from < len(p.seen)
			p.mu.Unlock()
			if !more {
				return message{}, 0, errEnded
			}
		case <-deadline.C:
			return message{}, 0, fmt.Errorf("nothing within %s", patience)
		}
	}
}

// try sends a request and waits for its answer.
func (p *process) try(method string, params any) (json.RawMessage, error) {
	id, err := p.ask(method, params)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return p.wait(id)
}

// call is try that must succeed.
func (p *process) call(method string, params any) json.RawMessage {
	p.t.Helper()
	result, err := p.try(method, params)
	require.NoError(p.t, err, method)
	return result
}

// refused is try that must be refused.
func (p *process) refused(method string, params any) *wireError {
	p.t.Helper()
	result, err := p.try(method, params)
	var e *wireError
	require.ErrorAs(p.t, err, &e, "%s answered %s", method, result)
	return e
}

// newSession makes a session in the box's workspace.
func (p *process) newSession(cwd string) string {
	p.t.Helper()
	return field[string](p.t, p.call("session/new", map[string]any{"cwd": cwd, "mcpServers": []any{}}), "sessionId")
}

// prompt sends a user message and returns its entry id.
func (p *process) prompt(session, text string) string {
	p.t.Helper()
	result := p.call("session/prompt", promptParams(session, text))
	return field[string](p.t, result, "_meta", "oino", "entryId")
}

func promptParams(session, text string) map[string]any {
	return map[string]any{"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": text}}}
}

// field is a value somewhere in a result.
func field[T any](t testing.TB, result json.RawMessage, keys ...string) T {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(result, &v))
	for _, key := range keys {
		object, _ := v.(map[string]any)
		v = object[key]
	}
	got, ok := v.(T)
	require.True(t, ok, "no %T at %s in %s", got, strings.Join(keys, "."), result)
	return got
}

// hangUp closes the process's stdin.
func (p *process) hangUp() { p.in.Close() }

// exit closes stdin and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	p.hangUp()
	return p.waitExit()
}

// waitExit waits for the process to end by itself.
func (p *process) waitExit() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		require.FailNow(p.t, "the process does not end")
	}
	return p.code
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s syscall.Signal) { syscall.Kill(p.pid(), s) }

// kill ends the process and all that it has started at once. An ended one is
// left alone.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	select {
	case <-p.exited:
	default:
		syscall.Kill(-p.pid(), syscall.SIGKILL)
		<-p.exited
	}
	p.in.Close()
}

func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *process) stdoutFault() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// talk is all that was said, to be shown when a test fails.
type talk struct {
	mu    sync.Mutex
	lines []string
}

func (k *talk) add(name, direction, line string) {
	line = strings.TrimRight(line, "\n")
	if len(line) > 600 {
		line = fmt.Sprintf("%s … (%d bytes)", line[:600], len(line))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, fmt.Sprintf("%s%s %s", name, direction, line))
}

// String is the end of the talk; of a flood, what came before it is rarely
// worth a screen.
func (k *talk) String() string {
	const most = 120
	k.mu.Lock()
	defer k.mu.Unlock()
	lines := k.lines
	head := "what was said:\n"
	if len(lines) > most {
		head = fmt.Sprintf("what was said, without the first %d lines:\n", len(lines)-most)
		lines = lines[len(lines)-most:]
	}
	return head + strings.Join(lines, "\n")
}

// stderrTo notes what a process says on stderr in its talk.
type stderrTo struct {
	talk *talk
	name string
	part []byte
}

func (w *stderrTo) Write(b []byte) (int, error) {
	w.part = append(w.part, b...)
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		w.talk.add(w.name, "stderr:", string(w.part[:i]))
		w.part = w.part[i+1:]
	}
}
