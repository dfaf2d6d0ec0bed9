package rpc

import (
	"errors"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// An agent that goes back in its own conversation has to be told where to, in
// its own terms: by a message's id, or by what the message says and how often
// that was said before. All of it is read from the log, for the session at the
// agent outlives us; only where the agent has named messages since, when it
// replayed its session, that counts more.
//
// What the agent has is not always what the log has: of a session that was
// seeded only what was said since, words of ours before the user's, and
// perhaps not a message that it answered with an error. A place that cannot be
// told beyond doubt is not told at all.

// anchor is a message as the agent is told of it.
type anchor struct {
	MessageID   string `json:"messageId"`
	Fingerprint string `json:"messageFingerprint"`
	Occurrence  int    `json:"messageOccurrence"` // among messages of its role that say the same, from 1
	// known: the id is the agent's. Otherwise it is one of ours, for agents that
	// insist on one and then go by the rest.
	known bool
	sure  bool // what it says and how often tells it
}

// cut is where the agent's conversation is to end: between two of its messages.
type cut struct {
	before *anchor // the user's message that is the first to go; nil: none goes
	last   *anchor // the newest of the agent's that stays; nil: none does
	first  bool    // before is the first of all
	ends   bool    // nothing that stays comes after last
}

// spokenMessage is a message of the conversation, of one entry or more.
type spokenMessage struct {
	role   session.Role
	entry  string // the first
	id     string // the agent's, as the log has it
	text   string
	print  string
	to     int  // where its last entry stands
	had    bool // the agent has it, for certain
	anchor anchor
}

// cutAfter is the cut after the entry leaf ("": before the first) in what was
// said in the agent's session, the entries of its branch from since on (see
// session.Wrapped; hidden: Hidden). names are the ids that the agent has given
// since; nil: none.
func cutAfter(said []session.Entry, leaf, since string, hidden bool, names *named) (cut, error) {
	var c cut
	k := slices.IndexFunc(said, func(e session.Entry) bool { return e.ID == leaf }) + 1
	switch {
	case k == 0 && (leaf != "" || since != session.Start && since != ""):
		return c, errors.New("the agent's session did not hear that message")
	case k < len(said) && said[k].Role != session.User:
		return c, errors.New("that is in the middle of a turn")
	}
	c.first = k == 0 && since == session.Start
	messages, err := messagesOf(said)
	if err != nil {
		return c, err
	}
	tell(messages, hidden || since == "", names)
	for i := range messages {
		m := &messages[i]
		switch {
		case m.to < k && m.role == session.Assistant:
			c.last, c.ends = &m.anchor, m.to == k-1
		case m.to >= k && c.before == nil && m.role == session.User:
			c.before = &m.anchor
		}
	}
	return c, nil
}

// place is one in the agent's conversation as a client tells the agent of it:
// before a message of the user's, or behind one of the agent's.
type place struct {
	role session.Role // "": none
	at   anchor
}

// next is the entry of said that comes first behind the place; "": none does.
// The rest is as of cutAfter.
func (p place) next(said []session.Entry, since string, hidden bool, names *named) (string, error) {
	messages, err := messagesOf(said)
	if err != nil {
		return "", err
	}
	tell(messages, hidden || since == "", names)
	i, err := p.among(messages)
	if err != nil {
		return "", err
	}
	k := messages[i].to
	if p.role == session.Assistant {
		k++
	}
	switch {
	case k == len(said):
		return "", nil
	case said[k].Role != session.User:
		return "", errors.New("that is in the middle of a turn")
	}
	return said[k].ID, nil
}

// among is which of messages the place names.
func (p place) among(messages []spokenMessage) (int, error) {
	id := p.at.MessageID
	for _, isIt := range []func(spokenMessage) bool{
		func(m spokenMessage) bool { return id != "" && m.anchor.known && m.anchor.MessageID == id },
		func(m spokenMessage) bool { return id != "" && m.id == id }, // as it was called before
		func(m spokenMessage) bool { // clients may have ids of their own
			return m.anchor.sure && m.print == p.at.Fingerprint && m.anchor.Occurrence == p.at.Occurrence
		},
	} {
		found := -1
		for i, m := range messages {
			switch {
			case m.role != p.role || !isIt(m):
			case found >= 0:
				return 0, errors.New("more than one message is called that")
			default:
				found = i
			}
		}
		if found >= 0 {
			return found, nil
		}
	}
	return 0, errors.New("that message is none that the log knows")
}

// messagesOf puts entries together to messages. What the agent says in a turn
// under one id is one, whatever tools it uses in between.
func messagesOf(said []session.Entry) ([]spokenMessage, error) {
	var all []spokenMessage
	turn := 0 // where the messages of the turn begin
	for i, e := range said {
		if e.Role != session.User && e.Role != session.Assistant {
			continue
		}
		blocks, err := protocol.ParseBlocks(e.Content)
		if err != nil {
			return nil, err
		}
		m := spokenMessage{role: e.Role, entry: e.ID, id: e.MessageID, text: textOfBlocks(blocks), print: e.Told, to: i}
		if e.Role == session.User {
			turn = len(all)
			m.had = e.MessageID != "" || i+1 < len(said) && said[i+1].Role != session.User // it has said something to it
		} else if same := slices.IndexFunc(all[turn:], func(o spokenMessage) bool {
			return o.role == session.Assistant && o.id != "" && o.id == e.MessageID
		}); same >= 0 {
			all[turn+same].text += m.text
			all[turn+same].to = i
			continue
		}
		all = append(all, m)
	}
	return all, nil
}

// tell fills the anchors of messages. hidden: the agent has others before them,
// which nobody has counted.
func tell(messages []spokenMessage, hidden bool, names *named) {
	type words struct {
		role  session.Role
		print string
	}
	count, doubtful := map[words]int{}, map[words]bool{}
	for i := range messages {
		m := &messages[i]
		if m.print == "" {
			m.print = fingerprint(m.text)
		}
		if strings.HasPrefix(m.id, cutPrefix) {
			m.id = ""
		}
		w := words{m.role, m.print}
		count[w]++
		if m.role == session.User && !m.had {
			doubtful[w] = true
		}
		a := anchor{MessageID: m.id, Fingerprint: m.print, Occurrence: count[w], sure: !hidden && !doubtful[w]}
		if names != nil && a.sure {
			if id := names.idOf(m.role, m.print, count[w]); id != "" {
				a.MessageID = id
			}
		}
		if a.known = a.MessageID != ""; !a.known {
			a.MessageID = m.entry
		}
		m.anchor = a
	}
}

func (a *anchor) tellable() bool { return a != nil && (a.known || a.sure) }

// canRewind reports whether _session/rewind can be told of the cut.
func (c cut) canRewind() bool {
	return c.before.tellable() && (c.first || c.last.tellable())
}

// canEndAt reports whether a fork that ends with a message of the agent's can
// be told of the cut: it must not lose what came after that.
func (c cut) canEndAt() bool { return c.last != nil && c.last.known && c.ends }

// canEndBefore is canEndAt for one that ends before a message of the user's.
func (c cut) canEndBefore() bool { return c.before != nil && c.before.known }
