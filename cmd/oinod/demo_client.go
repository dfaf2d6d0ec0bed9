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

// message is any JSON-RPC message, either way.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *messageError   `json:"error,omitempty"`
}

type messageError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
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
	answer, err := c.roundTrip(method, params)
	if err == nil && answer.Error != nil {
		err = fmt.Errorf("%s (%d)", answer.Error.Message, answer.Error.Code)
	}
	if err == nil {
		err = json.Unmarshal(answer.Result, result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// roundTrip sends a request and deals with what comes until its answer does.
func (c *peer) roundTrip(method string, params any) (message, error) {
	c.last++
	id := json.RawMessage(fmt.Sprint(c.last))
	b, err := json.Marshal(params)
	if err != nil {
		return message{}, err
	}
	if err := c.send(message{ID: id, Method: method, Params: b}); err != nil {
		return message{}, err
	}
	for {
		m, err := c.receive()
		switch {
		case err != nil:
			return m, err // io.EOF too: it ended in the middle
		case m.Method == "" && bytes.Equal(m.ID, id):
			return m, nil
		case m.Method == "":
			return m, fmt.Errorf("an answer to %s, which nobody asked", m.ID)
		case m.ID == nil:
			continue // a notification: the trace has it
		}
		answer, err := json.Marshal(c.asked(m.Method, m.Params))
		if err != nil {
			return m, err
		}
		if err := c.send(message{ID: m.ID, Result: answer}); err != nil {
			return m, err
		}
	}
}

func (c *peer) send(m message) error {
	m.JSONRPC = "2.0"
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
