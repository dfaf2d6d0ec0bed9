package session

import (
	"bytes"
	"context"
	"encoding/json"
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
	// Since is the entry behind which the agent has the conversation as messages
	// of its own session; up to there it was told of it, in one of these. Start:
	// it has them all. "": nobody knows, or it has others before them.
	Since string
	// Doubt: it was asked to forget a part of its session, and nobody knows
	// whether it did. That session is not to be used any more.
	Doubt bool
	// Back: it has forgotten a part of its session, and had no message since.
	Back bool
	// Owed: of what came up to Since it has not been told yet.
	Owed bool
	// Hidden: the agent has other messages of its own before those since Since.
	Hidden bool
	// PutBack are paths that were brought back, of which it is to be told with
	// its next message; those of the session's own rewinds are not among them.
	PutBack []string
}

// Setting is a mode or an option of an agent's session, as its client has set it.
type Setting struct {
	Method, Key string
	Params      json.RawMessage // compact, as the log has them
}

func (s Setting) equal(o Setting) bool {
	return s.Method == o.Method && s.Key == o.Key && bytes.Equal(s.Params, o.Params)
}

// settingRecord is a Setting in the log. The newest one of a method and key counts.
type settingRecord struct {
	Type   string          `json:"type"` // setting
	Method string          `json:"method"`
	Key    string          `json:"key,omitempty"`
	Params json.RawMessage `json:"params"`
}

// agentRecord is a Wrapped in the log. The newest one of an id counts, and the
// newest of all says whom the session's prompts go to.
type agentRecord struct {
	Type      string `json:"type"` // agent
	Name      string `json:"name"`
	SessionID string `json:"sessionId"`
	Current   string `json:"current,omitempty"`
	Knows     string `json:"knows,omitempty"`
	Since     string `json:"since,omitempty"`
	Doubt     bool   `json:"doubt,omitempty"`
	Back      bool   `json:"back,omitempty"`
	Owed      bool   `json:"owed,omitempty"`
	Hidden    bool   `json:"hidden,omitempty"`

	PutBack []string `json:"putBack,omitempty"`
}

// maxAgentIDs is how many ids of a session a listing shows: the newest.
const maxAgentIDs = 100

// maxEarlier is how many sessions of the agent's that a conversation was in are
// remembered, the newest.
const maxEarlier = 1000

func (st *state) applyAgent(r *agentRecord) {
	now := Wrapped{
		Agent: r.Name, ID: r.SessionID, Current: r.Current, Knows: r.Knows, Since: r.Since,
		Doubt: r.Doubt, Back: r.Back, Owed: r.Owed, Hidden: r.Hidden, PutBack: r.PutBack,
	}
	var others []Wrapped
	earlier := slices.Clone(st.earlier)
	for _, w := range st.wrapped {
		if w.Agent == now.Agent && w.ID == now.ID {
			earlier = append(earlier, w)
		} else {
			others = append(others, w)
		}
	}
	st.wrapped = append(others, now)
	earlier = slices.DeleteFunc(earlier, func(w Wrapped) bool { return w.Agent == now.Agent && w.ID == now.ID && w.Current == now.Current })
	st.earlier = earlier[max(0, len(earlier)-maxEarlier):]
}

// tellAgent notes that the agent hears of an entry in the course of the
// conversation that it knows. (After a rewind it knows another one.)
func (st *state) tellAgent(r *entryRecord) {
	n := len(st.wrapped)
	if n == 0 || st.wrapped[n-1].Knows != r.ParentID || st.wrapped[n-1].Doubt {
		return
	}
	w := &st.wrapped[n-1]
	if w.Knows = r.ID; !w.Owed {
		w.Back, w.PutBack = false, nil
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
// by another: those to these. To "" are those that it had before, and nobody
// knows any more.
func (st *state) renamed() map[string]string {
	all := map[string]string{}
	for _, w := range st.earlier[max(0, len(st.earlier)-maxAgentIDs):] {
		if w.Current != "" {
			all[w.Current] = ""
		}
	}
	for _, w := range st.wrapped[max(0, len(st.wrapped)-maxAgentIDs):] {
		if w.Current != "" {
			all[w.Current] = w.ID
		}
	}
	if len(all) == 0 {
		return nil
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
	r := &agentRecord{
		Type: "agent", Name: w.Agent, SessionID: w.ID, Since: w.Since, Doubt: w.Doubt, Back: w.Back, Owed: w.Owed, Hidden: w.Hidden,
		PutBack: w.PutBack[:min(len(w.PutBack), maxPutBack)],
	}
	if w.Current != w.ID {
		r.Current = w.Current
	}
	if s.state.leaf != nil && !fresh {
		r.Knows = s.state.leaf.id
	}
	return s.commit(r)
}

// maxPutBack is of how many paths an agent is told that they were put back.
const maxPutBack = 1000

// Earlier are the agent's sessions in which the conversation was that the client
// knows by id, each with what the agent knows in it, the newest last.
func (s *Session) Earlier(agent, id string) (all []Wrapped) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.state.earlier {
		if w.Agent == agent && w.ID == id {
			all = append(all, w)
		}
	}
	return all
}

// Set keeps how an agent's session is set. What was set before and is not named
// stays, and was set before these.
func (s *Session) Set(ctx context.Context, settings ...Setting) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	had := s.state.settings
	var want []Setting
	for _, o := range had {
		if !slices.ContainsFunc(settings, func(set Setting) bool { return o.Method == set.Method && o.Key == set.Key }) {
			want = append(want, o)
		}
	}
	from := len(want) // each that is written goes to the end
	want = append(want, settings...)
	same := 0
	for same < min(len(had), len(want)) && had[same].equal(want[same]) {
		same++
	}
	var records []any
	for _, set := range want[max(from, same):] {
		records = append(records, &settingRecord{Type: "setting", Method: set.Method, Key: set.Key, Params: set.Params})
	}
	return s.commit(records...)
}

// Settings is how an agent's session is set, in the order in which that was done.
func (s *Session) Settings() []Setting {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.state.settings)
}

func (st *state) applySetting(r *settingRecord) {
	var all []Setting
	for _, set := range st.settings {
		if set.Method != r.Method || set.Key != r.Key {
			all = append(all, set)
		}
	}
	st.settings = append(all, Setting{Method: r.Method, Key: r.Key, Params: r.Params})
}

// NameMessages keeps what the agent calls messages of the user: by entry.
func (s *Session) NameMessages(ctx context.Context, ids map[string]string) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	var records []any
	for _, entry := range slices.Sorted(maps.Keys(ids)) {
		if n := s.state.nodes[entry]; n != nil && n.messageID != ids[entry] {
			records = append(records, &messageRecord{Type: "message", Entry: entry, MessageID: ids[entry]})
		}
	}
	return s.commit(records...)
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

// Standing is Wrapped("") and LeafID, both of one moment: between the two calls
// something may be said.
func (s *Session) Standing() (w Wrapped, leaf string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state.leaf != nil {
		leaf = s.state.leaf.id
	}
	if n := len(s.state.wrapped); n > 0 {
		w, ok = s.state.wrapped[n-1], true
	}
	return w, leaf, ok
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
// by another: those to these; and to "" those that it had before.
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
	found, err := r.findWrapped(ctx, cwd, agent, id)
	var newest Info
	for _, info := range found {
		if newest.SessionID == "" || info.UpdatedAt > newest.UpdatedAt {
			newest = info
		}
	}
	return newest.SessionID, err
}

// OnlyWrapped is FindWrapped where nobody says in which directory: "" also where
// there are several.
func (r *Registry) OnlyWrapped(ctx context.Context, agent, id string) (sessionID string, err error) {
	found, err := r.findWrapped(ctx, "", agent, id)
	if err != nil || len(found) != 1 {
		return "", err
	}
	return found[0].SessionID, nil
}

func (r *Registry) findWrapped(ctx context.Context, cwd, agent, id string) (found []Info, err error) {
	all, err := r.summariesOf(ctx, cwd)
	if err != nil {
		return nil, err
	}
	quoted, err := encodeJSON(id)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if !bytes.Contains(s.info, quoted) { // nearly all
			continue
		}
		info, err := s.decode()
		if err != nil {
			return nil, err
		}
		if info.Agent != agent || !slices.Contains(info.AgentSessionIDs, id) || cwd != "" && !checkpoints.SameDir(info.Cwd, cwd) {
			continue
		}
		found = append(found, info)
	}
	return found, nil
}
