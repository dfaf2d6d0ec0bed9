package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
)

// peer is a process that speaks JSON-RPC on its stdin and stdout.
type peer struct {
	cmd    *exec.Cmd // nil where somebody else runs it
	in     io.WriteCloser
	w      *bufio.Writer
	r      *bufio.Reader
	errs   bytes.Buffer
	nextID int
}

func startPeer(cmd *exec.Cmd) (*peer, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := newPeer(in, out)
	p.cmd = cmd
	cmd.Stderr = &p.errs
	return p, cmd.Start()
}

func newPeer(in io.WriteCloser, out io.Reader) *peer {
	return &peer{in: in, w: bufio.NewWriterSize(in, 64<<10), r: bufio.NewReaderSize(out, 64<<10)}
}

// stop ends the peer's input and waits for it.
func (p *peer) stop() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, p.r); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, err, p.errs.Bytes())
	}
	return nil
}

// abandon ends the peer at once, where what it answers no longer matters.
func (p *peer) abandon() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// request is one line, encoded before anything is measured.
func (p *peer) request(method string, params any) ([]byte, error) {
	p.nextID++
	line, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", p.nextID, method, params})
	return append(line, '\n'), err
}

// pipeline sends all lines without waiting in between, and returns when all
// are answered. Any error is the peer's.
func (p *peer) pipeline(lines [][]byte) error {
	sent := make(chan error, 1)
	go func() { // ends when all is written, or the peer is gone
		for _, line := range lines {
			if _, err := p.w.Write(line); err != nil {
				sent <- err
				return
			}
		}
		sent <- p.w.Flush()
	}()
	for range lines {
		if _, err := p.answer(); err != nil {
			return err
		}
	}
	return <-sent
}

// call sends one request and returns its result.
func (p *peer) call(method string, params any) (json.RawMessage, error) {
	line, err := p.request(method, params)
	if err != nil {
		return nil, err
	}
	return p.exchange(line)
}

// exchange sends one line and returns the answer's result.
func (p *peer) exchange(line []byte) (json.RawMessage, error) {
	if _, err := p.w.Write(line); err != nil {
		return nil, err
	}
	if err := p.w.Flush(); err != nil {
		return nil, err
	}
	answer, err := p.answer()
	if err != nil {
		return nil, err
	}
	var m struct {
		Result json.RawMessage `json:"result"`
	}
	return m.Result, json.Unmarshal(answer, &m)
}

// answer reads up to the next answer. Notifications are passed over.
func (p *peer) answer() ([]byte, error) {
	for {
		line, err := p.r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the peer has closed its output: %s", p.errs.Bytes())
		}
		if err != nil {
			return nil, err
		}
		head := line[:min(len(line), 80)]
		switch {
		case bytes.Contains(head, []byte(`"method":`)):
		case bytes.Contains(head, []byte(`"error":`)):
			return nil, fmt.Errorf("the peer answered %s", bytes.TrimSpace(line))
		default:
			return line, nil
		}
	}
}

// stream sends one line and reads n chunks of what an agent says in return.
func (p *peer) stream(line []byte, n int) error {
	if _, err := p.w.Write(line); err != nil {
		return err
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	for n > 0 {
		line, err := p.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.Contains(line, []byte(`"agent_message_chunk"`)) {
			n--
		}
	}
	return nil
}

func (p *peer) initialize() (json.RawMessage, error) {
	return p.call("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}})
}

// newSession makes a session in cwd and returns its id.
func (p *peer) newSession(cwd, tracking string) (string, error) {
	params := map[string]any{"cwd": cwd, "mcpServers": []any{}}
	if tracking != "" {
		params["_meta"] = map[string]any{"oino": map[string]any{"tracking": tracking}}
	}
	raw, err := p.call("session/new", params)
	if err != nil {
		return "", err
	}
	var r struct {
		SessionID string `json:"sessionId"`
	}
	return r.SessionID, json.Unmarshal(raw, &r)
}

// user appends a user entry, which begins a turn.
func (p *peer) user(session string, turn int) (id string, err error) {
	id = "turn-" + strconv.Itoa(turn)
	_, err = p.call("_oino/append", map[string]any{"sessionId": session, "entries": []any{
		map[string]any{"role": "user", "id": id, "content": "go on with part " + strconv.Itoa(turn)},
	}})
	return id, err
}

// records are the requests that record paths, n in each.
func (p *peer) records(session string, paths []string, n int) ([][]byte, error) {
	var lines [][]byte
	for len(paths) > 0 {
		some := paths[:min(n, len(paths))]
		paths = paths[len(some):]
		line, err := p.request("_oino/record", map[string]any{"sessionId": session, "paths": some})
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func (p *peer) turnEnd(session string) error {
	_, err := p.call("_oino/turn_end", map[string]any{"sessionId": session})
	return err
}
