package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// peer is a client of a child "oinod serve", as small as one can be: one
// request at a time, and whatever comes before its answer is dealt with on the
// way.
type peer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	last int // id of the newest request

	asked func(method string, params json.RawMessage) any // answers the child's requests
	trace func(direction string, line []byte)             // sees every line
}

// message is any JSON-RPC message that the child may send.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// The directions of a traced line.
const (
	toChild   = "client->oinod"
	fromChild = "oinod->client"
)

// startPeer starts this very program as "serve" on an agent directory. When
// ctx ends it is killed.
func startPeer(ctx context.Context, env []string, agentDir string, stderr io.Writer) (*peer, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "--agent-dir", agentDir, "serve")
	cmd.Env = env
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &peer{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// close ends the child as a client does, by ending its input.
func (c *peer) close() error {
	err := c.in.Close()
	for err == nil { // what it still has to say
		_, err = c.receive()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, c.cmd.Wait())
}

// call asks the child and decodes its answer into result.
func (c *peer) call(method string, params, result any) error {
	c.last++
	id := fmt.Sprint(c.last)
	err := c.send(map[string]any{"jsonrpc": "2.0", "id": c.last, "method": method, "params": params})
	for err == nil {
		var m message
		if m, err = c.receive(); err != nil {
			break // io.EOF too: it ended in the middle
		}
		switch {
		case m.Method != "" && m.ID != nil:
			err = c.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": c.asked(m.Method, m.Params)})
		case m.Method != "":
			// A notification: the trace has it.
		case string(m.ID) != id:
			err = fmt.Errorf("an answer to %s, which nobody asked", m.ID)
		case m.Error != nil:
			err = fmt.Errorf("%s (%d)", m.Error.Message, m.Error.Code)
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
	return fmt.Errorf("%s: %w", method, err)
}

func (c *peer) send(m map[string]any) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.trace(toChild, line)
	_, err = c.in.Write(append(line, '\n'))
	return err
}

func (c *peer) receive() (message, error) {
	var m message
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return m, err
	}
	line = bytes.TrimSpace(line)
	c.trace(fromChild, line)
	return m, json.Unmarshal(line, &m)
}
