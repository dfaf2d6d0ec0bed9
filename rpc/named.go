package rpc

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// fingerprint is how a message is told where its id is not known: the hash of
// its whole text, as it was said.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// textOfBlocks is the text of a message: that of its text blocks, with nothing
// between them.
func textOfBlocks(blocks protocol.Blocks) (text string) {
	for _, b := range blocks {
		if t, ok := b.Text(); ok {
			text += t
		}
	}
	return text
}

// maxMessageID bounds what is kept of an agent's ids.
const maxMessageID = 128

// messageID is an agent's id as it is kept; "" is none.
func messageID(raw []byte) string {
	if id := unquote(raw); len(id) <= maxMessageID {
		return id
	}
	return ""
}

// namedMessage is a message and what the agent calls it.
type namedMessage struct {
	role            session.Role
	id, fingerprint string
}

// named puts together the messages that an agent names: those of a session
// that it replays, or the one of the user's that it says again in a turn.
type named struct {
	list []namedMessage
	role session.Role // of the message under way; "": there is none
	id   string
	text hash.Hash
}

// maxNamed is how many messages of a replay are looked at: more are unusual,
// and their ids can be done without.
const maxNamed = 100_000

// hear takes an update of the agent's.
func (n *named) hear(u update) {
	var role session.Role
	switch u.variant {
	case protocol.UserMessageChunk, protocol.UserMessage:
		role = session.User
	case protocol.AgentMessageChunk, protocol.AgentMessage:
		role = session.Assistant
	default:
		return
	}
	id := messageID(u.message)
	if id == "" || role != n.role || id != n.id {
		n.end()
	}
	if id == "" || len(n.list) >= maxNamed {
		return
	}
	if n.role == "" {
		n.role, n.id, n.text = role, id, sha256.New()
	}
	blocks := [][]byte{u.content}
	if len(u.content) > 0 && u.content[0] == '[' {
		blocks = nil
		for _, b := range elements(u.content) {
			blocks = append(blocks, b)
		}
	}
	for _, b := range blocks {
		if kind := within(b, span{0, len(b)}, "type"); unquote(kind.of(b)) == "text" {
			n.text.Write([]byte(unquote(within(b, span{0, len(b)}, "text").of(b))))
		}
	}
}

// end ends the message under way.
func (n *named) end() {
	if n.role != "" {
		n.list = append(n.list, namedMessage{n.role, n.id, "sha256:" + hex.EncodeToString(n.text.Sum(nil))})
	}
	n.role, n.id, n.text = "", "", nil
}

// idOf is the id of the message of a role with that fingerprint, the n-th from
// 1 of several; "" where none was named. It may be another than before: agents
// find new ids when they open a session.
func (n *named) idOf(role session.Role, print string, occurrence int) string {
	n.end()
	for _, m := range n.list {
		if m.role != role || m.fingerprint != print {
			continue
		}
		if occurrence--; occurrence == 0 {
			return m.id
		}
	}
	return ""
}

// forget forgets a message and all after it.
func (n *named) forget(id string) {
	n.end()
	if i := slices.IndexFunc(n.list, func(m namedMessage) bool { return m.id == id && m.role == session.User }); i >= 0 {
		n.list = n.list[:i]
	}
}
