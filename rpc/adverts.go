package rpc

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// adverts are the ways in which an agent can go back in its own conversation,
// as it says in its answer to initialize.
type adverts struct {
	rewind       bool // _session/rewind: in its session
	rewindTo     bool // session/fork with _meta.claudeCode.rewindTo, up to a message of the agent's
	airFork      bool // session/fork with _meta.jetbrains.air.fork, up to one too
	forkMessage  bool // session/fork with messageId, before a message of the user's
	oinoPosition bool // session/fork with _meta.oino, before one too: of an agent that lives on oinod serve
}

// flag is an advert of which only that it is there counts.
type flag json.RawMessage

func (f *flag) UnmarshalJSON(b []byte) error { *f = slices.Clone(b); return nil }

func (f flag) set() bool { return len(f) > 0 && string(f) != "null" && string(f) != "false" }

// advertMeta is a _meta of the agent's, as far as it concerns us. Each member
// is read for itself: what is odd in one takes nothing from another.
type advertMeta struct {
	JetBrains struct {
		Air json.RawMessage `json:"air"`
	} `json:"jetbrains"`
	SessionRewind json.RawMessage `json:"sessionRewind"`
	ClaudeCode    json.RawMessage `json:"claudeCode"`
	Oino          json.RawMessage `json:"oino"`
}

// advertsOf reads the answer to initialize, of either version.
func advertsOf(result []byte) (a adverts) {
	type capabilities struct {
		Meta    json.RawMessage `json:"_meta"`
		Session json.RawMessage `json:"sessionCapabilities"`
		V2      json.RawMessage `json:"session"`
	}
	var all struct {
		Meta json.RawMessage `json:"_meta"`
		V1   capabilities    `json:"agentCapabilities"`
		V2   capabilities    `json:"capabilities"`
	}
	_ = json.Unmarshal(result, &all) // as much as can be read
	a.readMeta(all.Meta, true)
	for _, c := range []capabilities{all.V1, all.V2} {
		a.readMeta(c.Meta, false)
		for _, session := range []json.RawMessage{c.Session, c.V2} {
			var s struct {
				Fork struct {
					MessageID flag `json:"messageId"`
				} `json:"fork"`
			}
			_ = json.Unmarshal(session, &s)
			a.forkMessage = a.forkMessage || s.Fork.MessageID.set()
		}
	}
	return a
}

// readMeta reads one _meta. top: of the answer itself, where only
// _session/rewind is offered.
func (a *adverts) readMeta(raw json.RawMessage, top bool) {
	var meta advertMeta
	_ = json.Unmarshal(raw, &meta)
	var air struct {
		Version      int             `json:"version"`
		Capabilities json.RawMessage `json:"capabilities"`
		Fork         json.RawMessage `json:"fork"`
	}
	var named []string
	var rewind, airFork struct {
		Version int    `json:"version"`
		Method  string `json:"method"`
	}
	_ = json.Unmarshal(meta.JetBrains.Air, &air)
	_ = json.Unmarshal(air.Capabilities, &named)
	_ = json.Unmarshal(meta.SessionRewind, &rewind)
	a.rewind = a.rewind || air.Version == 1 && slices.Contains(named, "sessionRewind") ||
		rewind.Version == 1 && rewind.Method == protocol.SessionRewind
	if top {
		return
	}
	var claude struct {
		Rewind bool `json:"rewind"`
	}
	var oino struct {
		Version int      `json:"version"`
		Methods []string `json:"methods"`
	}
	_ = json.Unmarshal(meta.ClaudeCode, &claude)
	_ = json.Unmarshal(air.Fork, &airFork)
	_ = json.Unmarshal(meta.Oino, &oino)
	a.rewindTo = a.rewindTo || claude.Rewind
	a.airFork = a.airFork || airFork.Version == 1
	// An oinod wrap has no _oino/append, and passes session/fork on as it came.
	a.oinoPosition = a.oinoPosition || oino.Version == 1 && slices.Contains(oino.Methods, protocol.Append) && slices.Contains(oino.Methods, protocol.Fork)
}

// canGoBack reports whether one of the ways leads to the cut.
func (a adverts) canGoBack(c cut) bool {
	return a.rewind && c.canRewind() || a.forkAt(c, nil)
}

// forkAt adds the place of the cut to the params (nil: none) of a session/fork.
// False: the agent cannot fork there.
func (a adverts) forkAt(c cut, params map[string]json.RawMessage) bool {
	var key []string
	var value any
	switch {
	case a.rewindTo && c.canEndAt():
		key, value = []string{"claudeCode", "rewindTo"}, c.last.MessageID
	case a.airFork && c.canEndAt():
		key, value = []string{"jetbrains", "air", "fork"}, struct {
			Version int `json:"version"`
			*anchor
		}{1, c.last}
	case a.forkMessage && c.canEndBefore():
		if params != nil {
			params["messageId"] = mustEncode(c.before.MessageID)
		}
		return true
	case a.oinoPosition && c.canEndBefore():
		key, value = []string{"oino"}, map[string]string{"entryId": c.before.MessageID, "position": "before"}
	default:
		return false
	}
	if params != nil {
		params["_meta"] = withPath(params["_meta"], key, mustEncode(value))
	}
	return true
}

// forkedAt is the place that a client's session/fork with these params names: a
// message of the user's, before which the fork ends, or one of the agent's, with
// which it does. Zero: none that the agent heeds.
func (a adverts) forkedAt(params map[string]json.RawMessage) (at place) {
	var meta struct {
		ClaudeCode struct {
			RewindTo string `json:"rewindTo"`
		} `json:"claudeCode"`
		JetBrains struct {
			Air struct {
				Fork anchor `json:"fork"`
			} `json:"air"`
		} `json:"jetbrains"`
		Oino struct {
			EntryID  string `json:"entryId"`
			Position string `json:"position"`
		} `json:"oino"`
	}
	_ = protocol.Decode(params["_meta"], &meta) // as much as can be read
	switch {
	case a.rewindTo && meta.ClaudeCode.RewindTo != "":
		return place{session.Assistant, anchor{MessageID: meta.ClaudeCode.RewindTo}}
	case a.airFork && meta.JetBrains.Air.Fork != anchor{}:
		return place{session.Assistant, meta.JetBrains.Air.Fork}
	case a.forkMessage && unquote(params["messageId"]) != "":
		return place{session.User, anchor{MessageID: unquote(params["messageId"])}}
	case a.oinoPosition && (meta.Oino.Position == "before" || meta.Oino.Position == "") && meta.Oino.EntryID != "":
		return place{session.User, anchor{MessageID: meta.Oino.EntryID}}
	}
	return place{}
}

// withoutPlace is params of a session/fork without a place, of whatever agents:
// a session that is made in the same way later is none of that place.
func withoutPlace(params map[string]json.RawMessage) map[string]json.RawMessage {
	params = maps.Clone(params)
	delete(params, "messageId")
	for _, path := range [][]string{
		{"claudeCode", "rewindTo"}, {"jetbrains", "air", "fork"}, {"oino", "entryId"}, {"oino", "position"},
	} {
		if meta, ok := params["_meta"]; ok {
			params["_meta"] = withoutPath(meta, path)
		}
	}
	return params
}

// withPath is an object (or nothing yet) with the value set at a path in it.
func withPath(object json.RawMessage, path []string, value json.RawMessage) json.RawMessage {
	if len(path) == 0 {
		return value
	}
	if !isObject(object, span{0, len(object)}) {
		object = json.RawMessage("{}")
	}
	all := span{0, len(object)}
	inner := within(object, all, path[0]).of(object)
	return withMember(object, all, path[0], withPath(inner, path[1:], value))
}

// withoutPath is an object without what is at a path in it; what is no object
// stays as it is.
func withoutPath(object json.RawMessage, path []string) json.RawMessage {
	if !isObject(object, span{0, len(object)}) {
		return object
	}
	left := json.RawMessage("{}")
	for name, value := range members(object) {
		if name == path[0] {
			if len(path) == 1 {
				continue
			}
			value = withoutPath(value, path[1:])
		}
		left = withMember(left, span{0, len(left)}, name, value)
	}
	return left
}
