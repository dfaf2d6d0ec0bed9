package rpc

import (
	"context"
	"encoding/json"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// replay tells the client the active branch, as a user of it would have seen
// it happen.
func (s *server) replay(ctx context.Context, opened *session.Session) error {
	calls := map[string]bool{} // tool calls that the client knows
	return opened.Replay(ctx, func(e session.Entry) error {
		shown := e.Content
		if e.Display != nil {
			shown = e.Display
		}
		blocks, err := protocol.ParseBlocks(shown)
		if err != nil {
			return err
		}
		switch e.Role {
		case session.User:
			s.chunks(opened.ID(), protocol.UserMessageChunk, e.ID, blocks)
		case session.Tool:
			call, err := toolCall(e, blocks)
			if err != nil {
				return err
			}
			if calls[e.ToolCallID] {
				call.SessionUpdate = protocol.ToolCallUpdate
			} else {
				calls[e.ToolCallID] = true
				if call.Title == "" {
					call.Title = e.ToolCallID // ACP wants one
				}
			}
			s.client.update(opened.ID(), call)
		case session.Compaction:
			if len(blocks) == 0 && e.Summary != "" {
				blocks = protocol.Blocks{protocol.TextBlock(e.Summary)}
			}
			s.chunks(opened.ID(), protocol.AgentMessageChunk, e.ID, blocks)
		case session.Custom:
			if e.Display != nil { // else it is between the driver and its model
				s.chunks(opened.ID(), protocol.AgentMessageChunk, e.ID, blocks)
			}
		default:
			s.chunks(opened.ID(), protocol.AgentMessageChunk, e.ID, blocks)
		}
		return nil
	})
}

// toolCall is a tool entry as the client is told of it.
func toolCall(e session.Entry, blocks protocol.Blocks) (protocol.ToolCall, error) {
	call := protocol.ToolCall{SessionUpdate: protocol.ToolCallStart, ToolCallID: e.ToolCallID, Status: e.Status}
	if call.Status == "" {
		call.Status = "completed" // without one it would look as if it were still to come
	}
	if len(e.Tool) > 0 {
		if err := json.Unmarshal(e.Tool, &call.ToolFields); err != nil {
			return call, err
		}
	}
	for _, b := range blocks {
		call.Content = append(call.Content, toolContent(b))
	}
	return call, nil
}

// toolContent is a block of a tool entry as ACP has it in a tool call: drivers
// keep either content blocks or what they were told of the call.
func toolContent(b protocol.Block) any {
	var kind struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(b, &kind) // a block that is none was never taken
	switch kind.Type {
	case "content", "diff", "terminal":
		return b
	}
	return protocol.ToolContent{Type: "content", Content: b}
}
