package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/oino-dev/oinod/bench/rivals"
)

// childArg as the first argument makes this program a child of itself.
const childArg = "child"

func runChild(args []string, stdin io.Reader, stdout io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "seed":
		return rivals.ServeSeed(args[1], stdin, stdout)
	case len(args) == 1 && args[0] == "agent":
		return agent(stdin, stdout)
	}
	return fmt.Errorf("no child is called %q", args)
}

// agent is an ACP agent that does as little as one can, so that what lies
// between it and the client is all that is measured: it answers everything at
// once, and a prompt whose text is "stream N" with N updates before the answer.
func agent(in io.Reader, out io.Writer) error {
	r, w := bufio.NewReaderSize(in, 64<<10), bufio.NewWriterSize(out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				SessionID string `json:"sessionId"`
				Prompt    []struct {
					Text string `json:"text"`
				} `json:"prompt"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		if m.ID == nil || m.Method == "" {
			continue
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":1,"agentCapabilities":{},"authMethods":[]}`
		case "session/new":
			result = `{"sessionId":"agent-session"}`
		case "session/prompt":
			result = `{"stopReason":"end_turn"}`
			updates := 0
			for _, block := range m.Params.Prompt {
				_, _ = fmt.Sscanf(block.Text, "stream %d", &updates)
			}
			update := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":`+
				`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`+"\n",
				m.Params.SessionID, bytes.Repeat([]byte("so it is "), 12))
			for range updates {
				if _, err := w.Write(update); err != nil {
					return err
				}
			}
		}
		if _, err := fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result); err != nil {
			return err
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}
