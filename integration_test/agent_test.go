//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The scripted agent: this test binary, started again. What it does in a turn
// is what the user's message says, a command a line:
//
//	say TEXT              agent_message_chunk
//	tool ID KIND PATH     tool_call, pending, with a location
//	named ID KIND PATH    the same, and what follows waits until the client has it
//	done ID               tool_call_update, completed
//	write PATH TEXT       changes a file itself, as most agents do
//	append PATH TEXT
//	remove PATH
//	later MS PATH TEXT    a command it leaves running appends to a file
//	fswrite PATH TEXT     has the client write it
//	ask PATH              asks for permission with a diff, and writes if it gets it
//	hang                  works until it is cancelled
//	wait GATE             works until the gate is opened: see gate
//	mode                  says the session's mode
//	told                  says all that the model was told in this session
//	fail                  answers with an error, and forgets the message
//	forget                never answers
//	exit N                ends in the middle of the turn
//
// How it is besides is in its arguments: see fake.
const fakeArgument = "fake-agent"

func init() {
	if len(os.Args) > 1 && os.Args[1] == fakeArgument {
		os.Exit(fakeAgent(os.Args[2:]))
	}
}

// seen is what the scripted agent asks to know how far its messages got.
const seen = "fake/seen"

// gate is what a scripted agent waits for, and opens it.
func (b *box) gate() (path string, open func()) {
	path = filepath.Join(b.out, "gate")
	require.NoError(b.t, syscall.Mkfifo(path, 0o600))
	return path, func() {
		f, err := os.OpenFile(path, os.O_RDWR, 0) // waits for nobody
		require.NoError(b.t, err)
		b.t.Cleanup(func() { f.Close() })
	}
}

// fakeCommand is the command line of a scripted agent.
func fakeCommand(t testing.TB, options ...string) []string {
	self, err := os.Executable()
	require.NoError(t, err)
	return append([]string{self, fakeArgument}, options...)
}

// fake is the agent's state.
type fake struct {
	version       int
	caps          string // agentCapabilities
	name          string
	store         string // a directory that outlives the process: sessions
	early         bool   // announces commands before it names a session
	commands      string
	deaf          bool   // does not end with its input
	record        string // a file that gets every line it reads
	loses         bool   // answers load and resume with an error
	rewinds       fakeRewinds
	out           *bufio.Writer
	mu            sync.Mutex // of out, and of all below
	sessions      map[string]*fakeSession
	answers       map[string]chan json.RawMessage
	lastID, lastS int
}

type fakeSession struct {
	ID, Cwd, Mode string
	History       []fakeMessage // what the model has
	cancel        chan struct{}
	turn          sync.Mutex
}

func fakeAgent(options []string) int {
	f := &fake{version: 1, caps: `{"loadSession":true,"promptCapabilities":{"embeddedContext":true},"sessionCapabilities":{"fork":{}}}`, name: "fake",
		sessions: map[string]*fakeSession{}, answers: map[string]chan json.RawMessage{}, out: bufio.NewWriter(os.Stdout)}
	if len(options) == 4 && strings.HasPrefix(options[0], "play=") {
		var values []string
		for _, o := range options {
			_, value, _ := strings.Cut(o, "=")
			values = append(values, value)
		}
		return playAgent(values[0], values[1], values[2], values[3])
	}
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "v2":
			f.version, f.caps = 2, `{"session":{"prompt":{"embeddedContext":{}}}}`
		case "caps":
			f.caps = value
		case "name":
			f.name = value
		case "store":
			f.store = value
		case "early":
			f.early = true
		case "commands":
			f.commands = value
		case "deaf":
			f.deaf = true
			signal.Ignore(syscall.SIGTERM)
		case "child": // a child that hears nothing either, and whose id is written down
			child := exec.Command("sh", "-c", `trap "" TERM; echo $$ > "$0"; while :; do sleep 1; done`, value)
			if child.Start() != nil {
				return 1
			}
		case "record":
			f.record = value
		case "loses":
			f.loses = true
		case "meta":
			f.rewinds.meta = value
		case "ids":
			f.rewinds.ids = value
		case "refuses":
			f.rewinds.refuses = value
		case "exit":
			code, _ := strconv.Atoi(value)
			return code
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		if f.record != "" {
			file, err := os.OpenFile(f.record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return 1
			}
			file.Write(line)
			file.Close()
		}
		f.take(line)
	}
	if f.deaf {
		select {}
	}
	return 0
}

func (f *fake) take(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
		Params struct {
			SessionID string            `json:"sessionId"`
			Cwd       string            `json:"cwd"`
			ModeID    string            `json:"modeId"`
			Prompt    []json.RawMessage `json:"prompt"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &m) != nil {
		return
	}
	if m.Method == "" {
		f.mu.Lock()
		if answer := f.answers[string(m.ID)]; answer != nil {
			answer <- m.Result
		}
		f.mu.Unlock()
		return
	}
	s := f.session(m.Params.SessionID)
	switch m.Method {
	case "initialize":
		caps, info := "agentCapabilities", "agentInfo"
		if f.version == 2 {
			caps, info = "capabilities", "info"
		}
		meta := ""
		if f.rewinds.meta != "" {
			meta = `,"_meta":` + f.rewinds.meta
		}
		f.answer(m.ID, fmt.Sprintf(`{"protocolVersion":%d,%q:%s,%q:{"name":%q,"version":"1"}%s}`, f.version, caps, f.caps, info, f.name, meta))
	case "_session/rewind":
		f.answerRewind(m.ID, s, line)
	case "session/new", "session/fork":
		var history []fakeMessage
		if s != nil && m.Method == "session/fork" {
			var ok bool
			if history, ok = f.forkOf(m.ID, s, line); !ok {
				return
			}
		}
		f.mu.Lock()
		f.lastS++
		made := &fakeSession{ID: fmt.Sprintf("agent-%d-%d", os.Getpid(), f.lastS), Cwd: m.Params.Cwd, Mode: "default", History: history}
		f.sessions[made.ID] = made
		f.mu.Unlock()
		f.keep(made)
		if f.early && f.commands != "" {
			f.announce(made.ID)
		}
		f.answer(m.ID, fmt.Sprintf(`{"sessionId":%q, "unknown":{"a":1}}`, made.ID))
		if !f.early && f.commands != "" {
			f.announce(made.ID)
		}
	case "session/load", "session/resume":
		if s == nil || f.loses {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such session"}}`, m.ID))
			return
		}
		if m.Method == "session/load" {
			f.replay(s)
			if len(s.History) > 0 {
				f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"tool_call","toolCallId":"old","title":"old","kind":"edit","content":[{"type":"diff","path":%q,"oldText":"x","newText":"y"}]}`, filepath.Join(s.Cwd, "replayed.txt")))
			}
		}
		f.answer(m.ID, `{"modes":{"currentModeId":"loaded"}}`)
	case "session/set_mode":
		s.Mode = m.Params.ModeID
		f.answer(m.ID, `{}`)
	case "session/list":
		var all []string
		f.mu.Lock()
		for id, s := range f.sessions {
			all = append(all, fmt.Sprintf(`{"sessionId":%q, "cwd":%q}`, id, s.Cwd))
		}
		f.mu.Unlock()
		slices.Sort(all)
		f.answer(m.ID, `{"sessions":[`+strings.Join(all, ", ")+`],"nextCursor":null}`)
	case "session/close", "session/delete", "authenticate":
		f.answer(m.ID, `{}`)
	case "session/cancel":
		if s != nil {
			f.mu.Lock()
			if s.cancel != nil {
				close(s.cancel)
				s.cancel = nil
			}
			f.mu.Unlock()
		}
	case "session/prompt":
		cancelled := make(chan struct{})
		f.mu.Lock()
		s.cancel = cancelled
		f.mu.Unlock()
		go f.turn(m.ID, s, m.Params.Prompt, cancelled) // ends with the process
	case "fake/unread": // reads nothing any more
		select {}
	case "fake/echo":
		f.answer(m.ID, string(line[strings.Index(string(line), `"params":`)+9:strings.LastIndexByte(string(line), '}')]))
	default:
		if m.ID != nil {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID))
		}
	}
}

// session is one that is known, here or to an earlier process.
func (f *fake) session(id string) *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[id]
	if s == nil && f.store != "" && id != "" {
		data, err := os.ReadFile(filepath.Join(f.store, id))
		if err == nil {
			s = &fakeSession{}
			if json.Unmarshal(data, s) == nil {
				f.sessions[id] = s
			}
		}
	}
	return s
}

func (f *fake) keep(s *fakeSession) {
	if f.store == "" {
		return
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(f.store, s.ID), data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// say writes one line.
func (f *fake) say(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out.WriteString(line + "\n")
	f.out.Flush()
}

func (f *fake) answer(id json.RawMessage, result string) {
	if id != nil {
		f.say(fmt.Sprintf(`{"jsonrpc":"2.0","result":%s,"id":%s}`, result, id)) // ids last, as one of them has it
	}
}

func (f *fake) update(session, update string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`, session, update))
}

func (f *fake) announce(session string) {
	f.update(session, fmt.Sprintf(`{"sessionUpdate":"available_commands_update","availableCommands":%s}`, f.commands))
}

// ask asks the client and waits for its result.
func (f *fake) ask(method, params string) json.RawMessage {
	f.mu.Lock()
	id := strconv.Itoa(f.lastID) // from 0, as real ones
	f.lastID++
	answer := make(chan json.RawMessage, 1)
	f.answers[id] = answer
	f.mu.Unlock()
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return <-answer
}

// turn does what the user's message says.
func (f *fake) turn(id json.RawMessage, s *fakeSession, prompt []json.RawMessage, cancelled chan struct{}) {
	s.turn.Lock() // a second one waits
	defer s.turn.Unlock()
	script := ""
	for _, raw := range prompt {
		var block struct {
			Text     string `json:"text"`
			Resource struct {
				Text string `json:"text"`
			} `json:"resource"`
		}
		if json.Unmarshal(raw, &block) != nil {
			continue
		}
		if block.Text != "" {
			script = block.Text
		}
	}
	said := f.hears(s, prompt)
	f.keep(s)
	if f.version == 2 {
		f.answer(id, `{}`)
		f.update(s.ID, `{"sessionUpdate":"state_update","state":"running"}`)
	}
	reason := "end_turn"
	for _, line := range strings.Split(script, "\n") {
		if stop := f.do(s, line, cancelled); stop != "" {
			reason = stop
			break
		}
	}
	f.keep(s)
	if reason == "forgotten" {
		return
	}
	if reason == "failed" {
		f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"failed"}}`, id))
		return
	}
	if f.version == 2 {
		f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"state_update","state":"idle","stopReason":%q}`, reason))
		return
	}
	if reason == "huge" {
		reason, said = "end_turn", `,"_meta":"`+strings.Repeat("x", 64<<20)+`"`
	}
	f.answer(id, fmt.Sprintf(`{"stopReason":%q, "usage":{"totalTokens":1}%s}`, reason, said))
}

func (f *fake) do(s *fakeSession, line string, cancelled chan struct{}) (stop string) {
	words := strings.SplitN(line, " ", 2)
	rest := ""
	if len(words) == 2 {
		rest = words[1]
	}
	args := strings.Fields(rest)
	path := func(i int) string {
		if i >= len(args) {
			return ""
		}
		if filepath.IsAbs(args[i]) {
			return args[i]
		}
		return filepath.Join(s.Cwd, args[i])
	}
	text := func() string { _, t, _ := strings.Cut(rest, " "); return t + "\n" }
	toolCall := "tool_call"
	if f.version == 2 {
		toolCall = "tool_call_update"
	}
	var err error
	switch words[0] {
	case "say":
		f.says(s, rest)
	case "fail":
		s.History = s.History[:len(s.History)-1]
		return "failed"
	case "huge":
		return "huge"
	case "forget":
		return "forgotten"
	case "tool", "named":
		s.endMessage()
		f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":%q,"toolCallId":%q,"title":%q,"kind":%q,"status":"pending","locations":[{"path":%q}]}`, toolCall, args[0], "tool "+args[0], args[1], path(2)))
		if words[0] == "named" {
			f.ask(seen, fmt.Sprintf(`{"sessionId":%q}`, s.ID))
		}
	case "diff": // and it is done
		f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"tool_call_update","toolCallId":%q,"status":"completed","content":[{"type":"diff","path":%q,"oldText":null,"newText":"x"}]}`, args[0], path(1)))
	case "done":
		f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"tool_call_update","toolCallId":%q,"status":"completed"}`, args[0]))
	case "write":
		os.MkdirAll(filepath.Dir(path(0)), 0o755)
		err = os.WriteFile(path(0), []byte(text()), 0o644)
	case "append":
		err = appendTo(path(0), text())
	case "remove":
		err = os.Remove(path(0))
	case "later":
		ms, _ := strconv.Atoi(args[0])
		name, rest := path(1), strings.Join(args[2:], " ")+"\n"
		time.AfterFunc(time.Duration(ms)*time.Millisecond, func() { appendTo(name, rest) })
	case "fswrite":
		f.ask("fs/write_text_file", fmt.Sprintf(`{"path":%q,"content":%q,"sessionId":%q}`, path(0), text(), s.ID))
	case "ask":
		answer := f.ask("session/request_permission", fmt.Sprintf(
			`{"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}],"toolCall":{"toolCallId":"asked","kind":"edit","content":[{"type":"diff","path":%q,"oldText":"","newText":"asked\n"}]},"sessionId":%q}`,
			path(0), s.ID))
		if strings.Contains(string(answer), "yes") {
			err = os.WriteFile(path(0), []byte("asked\n"), 0o644)
		}
	case "hang":
		<-cancelled
		return "cancelled"
	case "wait":
		var gate *os.File
		if gate, err = os.Open(path(0)); err == nil { // when it is opened for writing too
			err = gate.Close()
		}
	case "mode":
		f.says(s, s.Mode)
	case "told":
		f.says(s, strings.Join(s.told(), "\n---\n"))
	case "exit":
		code, _ := strconv.Atoi(rest)
		os.Exit(code)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "the agent:", err)
	}
	return ""
}

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text)
	return err
}
