package rpc

import (
	"context"
	"encoding/json"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

func (s *server) appendEntries(ctx context.Context, _ *task, p *protocol.AppendParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	entries := make([]session.NewEntry, len(p.Entries))
	for i, e := range p.Entries {
		if entries[i], err = newEntry(e); err != nil {
			return nil, err
		}
	}
	ids, err := opened.Append(ctx, entries)
	if err != nil {
		return nil, err
	}
	return protocol.AppendResult{EntryIDs: list(ids)}, nil
}

// newEntry is what the session keeps of an entry on the wire.
func newEntry(e protocol.AppendEntry) (session.NewEntry, error) {
	n := session.NewEntry{
		Role: session.Role(e.Role), Content: json.RawMessage("[]"),
		ToolCallID: e.ToolCallID, Status: e.Status,
		Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
		MessageID: e.MessageID,
	}
	if e.ID != nil {
		n.ID = *e.ID
	}
	if e.Content != nil {
		n.Content = e.Content.Raw()
	}
	if e.DisplayContent != nil {
		n.Display = e.DisplayContent.Raw()
	}
	if n.Role == session.Tool {
		tool, err := protocol.Encode(e.ToolFields)
		if err != nil {
			return n, err
		}
		if string(tool) != "{}" {
			n.Tool = tool
		}
	}
	return n, nil
}

func (s *server) entries(ctx context.Context, _ *task, p *protocol.EntriesParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	q := session.EntriesQuery{After: p.After, Context: p.Context}
	if p.Limit != nil {
		q.Limit = *p.Limit
	}
	page, err := opened.Entries(ctx, q)
	if err != nil {
		return nil, err
	}
	result := protocol.EntriesResult{Entries: []protocol.Entry{}, LeafID: orNull(page.LeafID), Revision: page.Revision, More: page.More}
	for _, e := range page.Entries {
		w, err := wireEntry(e)
		if err != nil {
			return nil, err
		}
		result.Entries = append(result.Entries, w)
	}
	return result, nil
}

func wireEntry(e session.Entry) (protocol.Entry, error) {
	w := protocol.Entry{
		ID: e.ID, ParentID: orNull(e.ParentID), Role: string(e.Role), CreatedAt: e.CreatedAt,
		Content: e.Content, DisplayContent: e.Display, MessageID: e.MessageID,
		ToolEntry: protocol.ToolEntry{ToolCallID: e.ToolCallID, Status: e.Status},
		CompactionEntry: protocol.CompactionEntry{
			Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
		},
	}
	if len(w.Content) == 0 {
		w.Content = json.RawMessage("[]")
	}
	if len(e.Tool) > 0 {
		if err := json.Unmarshal(e.Tool, &w.ToolFields); err != nil {
			return w, err
		}
	}
	return w, nil
}

// orNull is null on the wire where there is no id.
func orNull(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

func (s *server) label(ctx context.Context, _ *task, p *protocol.LabelParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	return protocol.Empty{}, opened.Label(ctx, p.EntryID, p.Label.Value)
}

func (s *server) title(ctx context.Context, _ *task, p *protocol.TitleParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	if err := opened.SetTitle(ctx, p.Title.Value); err != nil {
		return nil, err
	}
	s.client.update(opened.ID(), protocol.InfoUpdate{SessionUpdate: protocol.SessionInfoUpdate, Title: orNull(opened.Title())})
	return protocol.Empty{}, nil
}

func (s *server) statePut(ctx context.Context, _ *task, p *protocol.StatePutParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	at, err := opened.PutState(ctx, p.EntryID, p.State)
	if err != nil {
		return nil, err
	}
	return protocol.StatePutResult{EntryID: at}, nil
}

func (s *server) stateGet(ctx context.Context, _ *task, p *protocol.StateGetParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	at, state, err := opened.GetState(ctx, p.EntryID)
	if err != nil {
		return nil, err
	}
	return protocol.StateGetResult{EntryID: at, State: state}, nil
}
