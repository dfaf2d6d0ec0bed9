package rpc

import (
	"context"
	"encoding/json"
	"time"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// session is the session with the id, opened if it is not.
func (s *server) session(ctx context.Context, id string) (*session.Session, error) {
	return s.host.session(ctx, id)
}

// greet hears what the client wants, before any later message is looked at.
func (s *server) greet(params json.RawMessage) {
	var p protocol.InitializeParams
	if protocol.Decode(params, &p) == nil {
		s.client.wants.Store(new(p.ClientCapabilities.Meta.Of()))
	}
}

func (s *server) initialize(context.Context, *task, *protocol.InitializeParams) (any, error) {
	return protocol.InitializeResult{
		ProtocolVersion: protocol.Version, // whatever the client speaks: it decides whether that will do
		AgentInfo:       protocol.Implementation{Name: "oinod", Version: s.config.Version},
		AuthMethods:     []json.RawMessage{},
		AgentCapabilities: protocol.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: protocol.PromptCapabilities{Image: true, Audio: true, EmbeddedContext: true},
			Meta: &protocol.Meta[protocol.AgentExtension]{Oino: &protocol.AgentExtension{
				Version:  protocol.ExtensionVersion,
				Methods:  extensions(s.methods()),
				Tracking: s.config.Tracking,
				Limits:   s.config.Limits,
			}},
		},
	}, nil
}

// coverageWait is how long session/new waits to say what of the workspace is
// covered.
const coverageWait = time.Second

func (s *server) newSession(ctx context.Context, t *task, p *protocol.NewParams) (any, error) {
	meta := p.Meta.Of()
	tracking := session.Tracking(meta.Tracking)
	if !meta.Wished {
		tracking = session.Files
	} else if tracking == "" {
		return nil, &session.Error{Kind: session.TrackingUnavailable, Msg: "_meta.oino.tracking is empty; leave it out for the default"}
	}
	opened, err := s.config.Registry.Create(ctx, session.CreateParams{
		Cwd: p.Cwd, AdditionalDirectories: p.AdditionalDirectories,
		Tracking: tracking, InMemory: meta.Persist != nil && !*meta.Persist,
	})
	if err != nil {
		return nil, err
	}
	id := opened.ID()
	extension := &protocol.SessionExtension{Tracking: string(opened.Tracking())}
	// A tree over its budget is known in a moment; a large one that is not goes
	// on being captured while the client goes on.
	short, cancel := context.WithTimeout(ctx, coverageWait)
	defer cancel()
	if c := opened.Coverage(short); c != nil {
		extension.Coverage = &protocol.Coverage{Complete: c.Complete, Reason: c.Reason}
	}
	t.after = func() { s.announce(id) } // the client learns the id from the answer
	return protocol.NewResult{
		SessionID: id,
		Meta:      &protocol.Meta[protocol.SessionExtension]{Oino: extension},
	}, nil
}

func (s *server) load(ctx context.Context, _ *task, p *protocol.OpenParams) (any, error) {
	opened, err := s.config.Registry.Load(ctx, p.SessionID, p.Cwd, p.AdditionalDirectories)
	if err != nil {
		return nil, err
	}
	if err := s.replay(ctx, opened); err != nil {
		return nil, err
	}
	s.announce(p.SessionID)
	return protocol.Empty{}, nil
}

func (s *server) resume(ctx context.Context, _ *task, p *protocol.OpenParams) (any, error) {
	if _, err := s.config.Registry.Load(ctx, p.SessionID, p.Cwd, p.AdditionalDirectories); err != nil {
		return nil, err
	}
	s.announce(p.SessionID)
	return protocol.Empty{}, nil
}

func (s *server) list(ctx context.Context, _ *task, p *protocol.ListParams) (any, error) {
	infos, next, err := s.config.Registry.List(ctx, session.ListParams{Cwd: p.Cwd, Cursor: p.Cursor})
	if err != nil {
		return nil, err
	}
	result := protocol.ListResult{Sessions: []protocol.SessionInfo{}, NextCursor: next}
	for _, i := range infos {
		result.Sessions = append(result.Sessions, sessionInfo(i))
	}
	return result, nil
}

func sessionInfo(i session.Info) protocol.SessionInfo {
	return protocol.SessionInfo{
		SessionID: i.SessionID, Cwd: i.Cwd, AdditionalDirectories: i.AdditionalDirectories, Title: i.Title,
		UpdatedAt: time.UnixMilli(i.UpdatedAt).UTC().Format("2006-01-02T15:04:05.000Z"),
		Meta: &protocol.Meta[protocol.InfoExtension]{Oino: &protocol.InfoExtension{
			CreatedAt: i.CreatedAt, Entries: i.Entries, LastUserMessage: i.LastUserMessage,
			ParentSessionID: i.ParentSessionID, Agent: i.Agent, Problem: i.Problem, ImportedFrom: i.ImportedFrom,
		}},
	}
}

func (s *server) closeSession(ctx context.Context, _ *task, p *protocol.SessionParams) (any, error) {
	return protocol.Empty{}, s.config.Registry.Close(ctx, p.SessionID)
}

func (s *server) deleteSession(ctx context.Context, _ *task, p *protocol.SessionParams) (any, error) {
	return protocol.Empty{}, s.config.Registry.Delete(ctx, p.SessionID)
}

// prompt takes the user's message. There is no model behind it: the client
// hears its message and plays the agent's part from there. A message that is
// a command of ours is none.
func (s *server) prompt(ctx context.Context, t *task, p *protocol.PromptParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	if c, ok := parseCommand(p.Prompt, nil); ok {
		return s.command(ctx, t, opened, c)
	}
	entry, err := opened.Prompt(ctx, p.Prompt.Raw())
	if err != nil {
		return nil, err
	}
	s.chunks(opened.ID(), protocol.UserMessageChunk, entry.ID, p.Prompt)
	return protocol.PromptResult{
		StopReason: protocol.EndTurn,
		Meta:       &protocol.Meta[protocol.PromptExtension]{Oino: &protocol.PromptExtension{EntryID: entry.ID, TurnOpen: true}},
	}, nil
}

// chunks tells the client a message, block by block.
func (s *server) chunks(sessionID, variant, messageID string, blocks protocol.Blocks) {
	for _, block := range blocks {
		s.client.update(sessionID, protocol.Chunk{SessionUpdate: variant, MessageID: messageID, Content: block})
	}
}

func (s *server) stats(ctx context.Context, _ *task, _ *struct{}) (any, error) {
	st, err := s.config.Registry.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return protocol.StatsResult{
		Sessions: st.Sessions, Checkpoints: st.Checkpoints, Blobs: st.Blobs, Bytes: st.Bytes,
		Limits: s.config.Limits, Version: s.config.Version,
	}, nil
}

func (s *server) cancelTurn(params json.RawMessage)    { s.client.tasks.cancelTurn(params) }
func (s *server) cancelRequest(params json.RawMessage) { s.client.tasks.cancelRequest(params) }
