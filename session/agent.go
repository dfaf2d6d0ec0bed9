package session

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// Wrapped is what a session of a wrapped agent is called on either side.
type Wrapped struct {
	Agent string // the agent's name
	ID    string // by which the client knows the session
	// Current is what the agent calls it now, where that is another.
	Current string
	// Knows is the entry up to which the agent knows the conversation; "" is
	// nothing. It follows the log as long as nothing is rewound.
	Knows string
}

// agentRecord is a Wrapped in the log. The newest one of an id counts, and the
// newest of all says whom the session's prompts go to.
type agentRecord struct {
	Type      string `json:"type"` // agent
	Name      string `json:"name"`
	SessionID string `json:"sessionId"`
	Current   string `json:"current,omitempty"`
	Knows     string `json:"knows,omitempty"`
}

// maxAgentIDs is how many ids of a session a listing shows: the newest.
const maxAgentIDs = 100

func (st *state) applyAgent(r *agentRecord) {
	st.wrapped = slices.DeleteFunc(st.wrapped, func(w Wrapped) bool { return w.Agent == r.Name && w.ID == r.SessionID })
	st.wrapped = append(st.wrapped, Wrapped{Agent: r.Name, ID: r.SessionID, Current: r.Current, Knows: r.Knows})
}

// tellAgent notes that the agent hears of an entry in the course of the
// conversation that it knows. (After a rewind it knows another one.)
func (st *state) tellAgent(r *entryRecord) {
	if n := len(st.wrapped); n > 0 && st.wrapped[n-1].Knows == r.ParentID {
		st.wrapped[n-1].Knows = r.ID
	}
}

// agentIDs are the ids that clients may know the session by.
func (st *state) agentIDs() []string {
	var ids []string
	for _, w := range st.wrapped[max(0, len(st.wrapped)-maxAgentIDs):] {
		ids = append(ids, w.ID)
	}
	return ids
}

// renamed are the ids that the agent now has for sessions which clients know
// by another: those to these.
func (st *state) renamed() map[string]string {
	var all map[string]string
	for _, w := range st.wrapped[max(0, len(st.wrapped)-maxAgentIDs):] {
		if w.Current != "" {
			if all == nil {
				all = map[string]string{}
			}
			all[w.Current] = w.ID
		}
	}
	return all
}

// SetWrapped says what the session is called from now on. Of w, Knows is
// ignored: the agent knows the whole conversation, or (fresh) nothing of it.
func (s *Session) SetWrapped(ctx context.Context, w Wrapped, fresh bool) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r := &agentRecord{Type: "agent", Name: w.Agent, SessionID: w.ID}
	if w.Current != w.ID {
		r.Current = w.Current
	}
	if s.state.leaf != nil && !fresh {
		r.Knows = s.state.leaf.id
	}
	return s.commit(r)
}

// Wrapped is what the session is called by the client that knows it as id, or
// for "" what it was called last. ok is false where it never was called so.
func (s *Session) Wrapped(id string) (w Wrapped, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range slices.Backward(s.state.wrapped) {
		if id == "" || w.ID == id {
			return w, true
		}
	}
	return Wrapped{}, false
}

// LeafID is the newest entry of the active branch, or "".
func (s *Session) LeafID() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state.leaf == nil {
		return ""
	}
	return s.state.leaf.id
}

// PutBack lists the paths that rewinds have brought back since the last
// message, sorted.
func (s *Session) PutBack() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var paths []string
	for _, rw := range s.state.redo {
		for path := range rw.steps {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Renamed are the ids that the agent now has for sessions which clients know
// by another: those to these.
func (r *Registry) Renamed(ctx context.Context, agent string) (map[string]string, error) {
	all := map[string]string{}
	err := r.EachInfo(ctx, "", func(i Info) error {
		if i.Agent == agent {
			maps.Copy(all, i.AgentRenamed)
		}
		return nil
	})
	return all, err
}

// FindWrapped finds the session in cwd ("": in any) that clients of the agent
// know by id, the one with the newest activity where there are several. "" is
// none.
func (r *Registry) FindWrapped(ctx context.Context, cwd, agent, id string) (sessionID string, err error) {
	all, err := r.summariesOf(ctx, cwd)
	if err != nil {
		return "", err
	}
	quoted, err := encodeRecord(id)
	if err != nil {
		return "", err
	}
	var newest Info
	for _, s := range all {
		if !bytes.Contains(s.info, quoted) { // nearly all
			continue
		}
		info, err := s.decode()
		if err != nil {
			return "", err
		}
		if info.Agent != agent || !slices.Contains(info.AgentSessionIDs, id) || cwd != "" && !checkpoints.SameDir(info.Cwd, cwd) {
			continue
		}
		if newest.SessionID == "" || info.UpdatedAt > newest.UpdatedAt {
			newest = info
		}
	}
	return newest.SessionID, nil
}
