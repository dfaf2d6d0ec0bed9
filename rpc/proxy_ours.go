package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/oino-dev/oinod/protocol"
)

// What the agent says of itself and its commands, and what we add to it.

// initialized is the agent's answer to initialize as the client gets it.
func (p *proxy) initialized(e envelope) []byte {
	var result struct {
		ProtocolVersion int                     `json:"protocolVersion"`
		AgentInfo       protocol.Implementation `json:"agentInfo"`
		Info            protocol.Implementation `json:"info"` // version 2
		Capabilities    struct {
			Prompt struct {
				EmbeddedContext bool `json:"embeddedContext"`
			} `json:"promptCapabilities"`
			Session map[string]json.RawMessage `json:"sessionCapabilities"`
		} `json:"agentCapabilities"`
		Capabilities2 struct {
			Session struct {
				Prompt map[string]json.RawMessage `json:"prompt"`
			} `json:"session"`
		} `json:"capabilities"`
	}
	_ = json.Unmarshal(e.result.of(e.line), &result) // as much as can be read
	name, capabilities := result.AgentInfo.Name, "agentCapabilities"
	has := func(all map[string]json.RawMessage, name string) bool {
		return all[name] != nil && string(all[name]) != "null" && string(all[name]) != "false"
	}
	offers := advertsOf(e.result.of(e.line))
	p.update(func(st *proxyState) {
		st.adverts = offers
		st.embedded = result.Capabilities.Prompt.EmbeddedContext
		st.resumes, st.forks = has(result.Capabilities.Session, "resume"), has(result.Capabilities.Session, "fork")
		if result.ProtocolVersion > 1 {
			name, capabilities = result.Info.Name, "capabilities"
			st.embedded, st.resumes, st.forks = has(result.Capabilities2.Session.Prompt, "embeddedContext"), true, false
		}
		if name != "" {
			st.agentName = name
		}
		st.version = result.ProtocolVersion
	})
	p.client.version.Store(int64(result.ProtocolVersion))

	methods := extensions(p.methods())
	if !p.config.Conversation {
		methods = slices.DeleteFunc(methods, func(name string) bool { return name == protocol.Fork }) // which is refused
	}
	ours := mustEncode(protocol.AgentExtension{
		Version: protocol.ExtensionVersion, Methods: methods, Tracking: p.config.Tracking, Limits: p.config.Limits,
	})
	line := e.line
	at := within(line, e.result, capabilities)
	switch meta := within(line, at, "_meta"); {
	case !isObject(line, e.result):
		return line
	case isObject(line, meta):
		return withMember(line, meta, "oino", ours)
	case isObject(line, at):
		return withMember(line, at, "_meta", mustEncode(map[string]json.RawMessage{"oino": ours}))
	}
	return withMember(line, e.result, capabilities, mustEncode(map[string]any{"_meta": map[string]json.RawMessage{"oino": ours}}))
}

// learnCommands takes the agent's own commands, an array.
func (w *wrapped) learnCommands(array []byte) {
	if len(array) == 0 || array[0] != '[' {
		return
	}
	taken := map[string]bool{}
	for _, command := range elements(array) {
		for name, value := range members(command) {
			if name == "name" {
				taken[unquote(value)] = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commands, w.taken = bytes.Clone(array), taken
}

func (w *wrapped) agentCommands() json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commands
}

// names is what our commands are called beside the agent's own.
func (w *wrapped) names() names {
	w.mu.Lock()
	taken := maps.Clone(w.taken)
	w.mu.Unlock()
	n := names{}
	for _, c := range commandList(nil) {
		longer := prefixed + c.Name
		if taken[longer] {
			n[longer] = longer // is not ours
		}
		if !taken[c.Name] {
			continue
		}
		n[c.Name] = longer
		for i := 2; taken[n[c.Name]]; i++ {
			n[c.Name] = fmt.Sprintf("%s-%d", longer, i)
		}
	}
	return n
}

// ourCommands are our commands as elements of an array.
func (w *wrapped) ourCommands() []byte {
	all := commandList(w.names())
	if w.proxy.client.version.Load() > 1 {
		for i := range all {
			all[i].Input = nil // which is another kind of thing there
		}
	}
	list := mustEncode(all)
	return list[1 : len(list)-1]
}

// withCommands is an available_commands_update of the agent's with our
// commands behind its own.
func (w *wrapped) withCommands(line []byte, at span) []byte {
	if !isArray(line, at) {
		return line
	}
	return withElement(line, at, w.ourCommands(), false)
}

// announce tells the client of all commands of a session.
func (w *wrapped) announce() {
	list := []byte("[]")
	if own := w.agentCommands(); json.Valid(own) {
		list = own
	}
	list = withElement(list, span{0, len(list)}, w.ourCommands(), false)
	w.proxy.client.notify(protocol.SessionUpdate, protocol.UpdateParams{SessionID: w.id, Update: map[string]any{
		"sessionUpdate": protocol.AvailableCommandsUpdate, "availableCommands": json.RawMessage(list),
	}})
}
