//go:build unix

package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// What the scripted agent knows of going back in its own conversation. It is
// as strict as any: a place that it cannot find, or that does not fit the rest
// of the request, is an error.
type fakeRewinds struct {
	meta string // the _meta of its answer to initialize
	// ids says which messages it names: none (""), "agent": its own, "answer": the
	// user's too, in its answer to a prompt, "echo": as it says them again,
	// "replay": only when it opens a session, and then by new ids.
	ids string
	// refuses says what becomes of a request to go back: "" it is done, "false",
	// "odd" (it answers for another session), "error", "exit" (it ends).
	refuses string
	lastID  int
}

// fakeMessage is one of a session.
type fakeMessage struct {
	Role, ID, Text string
	Blocks         []string // of the user's: each, with what resources say
	Done           bool     // what the agent says next is another
}

func (s *fakeSession) told() (all []string) {
	for _, m := range s.History {
		all = append(all, m.Blocks...)
	}
	return all
}

func (s *fakeSession) endMessage() {
	if n := len(s.History); n > 0 {
		s.History[n-1].Done = true
	}
}

// newMessageID is an id that no other process gives.
func (f *fake) newMessageID() string {
	f.rewinds.lastID++
	return fmt.Sprintf("msg-%d-%d", os.Getpid(), f.rewinds.lastID)
}

// hears takes a prompt into the session, and returns what the answer says of it.
func (f *fake) hears(s *fakeSession, prompt []json.RawMessage) (said string) {
	m := fakeMessage{Role: "user", ID: f.newMessageID(), Done: true}
	for _, raw := range prompt {
		var block struct {
			Text     string `json:"text"`
			Resource struct {
				Text string `json:"text"`
			} `json:"resource"`
		}
		if json.Unmarshal(raw, &block) == nil {
			m.Text += block.Text
			m.Blocks = append(m.Blocks, block.Text+block.Resource.Text)
		}
	}
	s.History = append(s.History, m)
	switch f.rewinds.ids {
	case "answer":
		return fmt.Sprintf(`,"userMessageId":%q`, m.ID)
	case "echo":
		half := len(m.Text) / 2
		for _, part := range []string{m.Text[:half], m.Text[half:]} {
			f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"user_message_chunk","messageId":%q,"content":{"type":"text","text":%q}}`, m.ID, part))
		}
	}
	return ""
}

// says says something, and keeps it in the session.
func (f *fake) says(s *fakeSession, text string) {
	n := len(s.History)
	if s.History[n-1].Done {
		s.History = append(s.History, fakeMessage{Role: "assistant", ID: f.newMessageID()})
		n++
	}
	m := &s.History[n-1]
	m.Text += text
	id := m.ID
	switch {
	case f.version == 2: // which wants one
	case f.rewinds.ids == "" && f.rewinds.meta != "" || f.rewinds.ids == "replay":
		f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}`, text))
		return
	case f.rewinds.ids == "":
		id = "m"
	}
	f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","messageId":%q,"content":{"type":"text","text":%q}}`, id, text))
}

// replay says what was said.
func (f *fake) replay(s *fakeSession) {
	for i, m := range s.History {
		id := ""
		if f.rewinds.ids == "replay" {
			s.History[i].ID = f.newMessageID()
			id = fmt.Sprintf(`"messageId":%q,`, s.History[i].ID)
		}
		variant := "user_message_chunk"
		if m.Role == "assistant" {
			variant = "agent_message_chunk"
		}
		f.update(s.ID, fmt.Sprintf(`{"sessionUpdate":%q,%s"content":{"type":"text","text":%q}}`, variant, id, m.Text))
	}
}

// refused answers a request that the agent is to refuse. False: it is not.
func (f *fake) refused(id json.RawMessage) bool {
	switch f.rewinds.refuses {
	case "":
		return false
	case "exit":
		os.Exit(5)
	case "false":
		f.answer(id, `{"rewound":false}`)
	case "odd":
		f.answer(id, `{"rewound":true,"sessionId":"another"}`)
	default:
		f.invalid(id, "refused")
	}
	return true
}

func (f *fake) invalid(id json.RawMessage, why string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":%q}}`, id, why))
}

// fakePoint names a message in a request.
type fakePoint struct {
	MessageID          string `json:"messageId"`
	MessageFingerprint string `json:"messageFingerprint"`
	MessageOccurrence  int    `json:"messageOccurrence"`
}

// find is where a message stands: by its id, else by what it says. -1: nowhere.
func (s *fakeSession) find(role string, p *fakePoint) int {
	print := func(m fakeMessage) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(m.Text))) }
	if i := slices.IndexFunc(s.History, func(m fakeMessage) bool { return m.Role == role && m.ID == p.MessageID }); i >= 0 {
		if p.MessageFingerprint != "" && print(s.History[i]) != p.MessageFingerprint {
			return -1
		}
		return i
	}
	n := 0
	for i, m := range s.History {
		if m.Role != role || print(m) != p.MessageFingerprint {
			continue
		}
		if n++; n == p.MessageOccurrence {
			return i
		}
	}
	return -1
}

// answerRewind answers _session/rewind.
func (f *fake) answerRewind(id json.RawMessage, s *fakeSession, line []byte) {
	var m struct {
		Params struct {
			BeforeMessage   *fakePoint `json:"beforeMessage"`
			ResumeAtMessage *fakePoint `json:"resumeAtMessage"`
		} `json:"params"`
	}
	if s == nil || json.Unmarshal(line, &m) != nil || m.Params.BeforeMessage == nil || m.Params.BeforeMessage.MessageID == "" {
		f.invalid(id, "no such session, or no message")
		return
	}
	if f.refused(id) {
		return
	}
	at := s.find("user", m.Params.BeforeMessage)
	if at < 0 {
		f.invalid(id, "no such message")
		return
	}
	stays := -1
	if m.Params.ResumeAtMessage != nil {
		if stays = s.find("assistant", m.Params.ResumeAtMessage); stays < 0 {
			f.invalid(id, "no such message of the agent's")
			return
		}
	}
	last := -1
	for i, h := range s.History[:at] {
		if h.Role == "assistant" {
			last = i
		}
	}
	if stays != last || last < 0 && at > 0 {
		f.invalid(id, "the message of the agent's is not the one before")
		return
	}
	s.History = s.History[:at]
	f.keep(s)
	f.answer(id, `{"rewound":true}`)
}

// forkOf is what a fork of a session has. Not ok: it was answered.
func (f *fake) forkOf(id json.RawMessage, s *fakeSession, line []byte) (history []fakeMessage, ok bool) {
	var m struct {
		Params struct {
			MessageID string `json:"messageId"`
			Meta      struct {
				ClaudeCode struct {
					RewindTo string `json:"rewindTo"`
				} `json:"claudeCode"`
				JetBrains struct {
					Air struct {
						Fork struct {
							Version int `json:"version"`
							fakePoint
						} `json:"fork"`
					} `json:"air"`
				} `json:"jetbrains"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &m) != nil {
		f.invalid(id, "wrong params")
		return nil, false
	}
	var end int
	meta := m.Params.Meta
	switch {
	case meta.ClaudeCode.RewindTo != "" && strings.Contains(f.caps, "claudeCode"):
		end = s.find("assistant", &fakePoint{MessageID: meta.ClaudeCode.RewindTo}) + 1
	case meta.JetBrains.Air.Fork.Version == 1 && strings.Contains(f.caps, "air"):
		end = s.find("assistant", &meta.JetBrains.Air.Fork.fakePoint) + 1
	case m.Params.MessageID != "" && strings.Contains(f.caps, "messageId"):
		end = s.find("user", &fakePoint{MessageID: m.Params.MessageID})
		if end < 0 {
			f.invalid(id, "no such message")
			return nil, false
		}
	default: // what it does not know, it does not look at
		return slices.Clone(s.History), true
	}
	if end == 0 && m.Params.MessageID == "" {
		f.invalid(id, "no such message")
		return nil, false
	}
	if f.refused(id) {
		return nil, false
	}
	return slices.Clone(s.History[:end]), true
}
