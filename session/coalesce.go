package session

import "encoding/json"

// maxCoalesced is how much content of one message is held while it is put
// together, in bytes.
const maxCoalesced = 1 << 20

// coalescer puts chunks of one message together on their way to next.
type coalescer struct {
	next   func(Entry) error
	first  Entry // of the message that is under way; no ID: none is
	blocks []json.RawMessage
	text   []byte // of the last block, if that is text and nothing else; not in blocks
	isText bool
	size   int
}

func isChunk(e Entry) bool { return e.Role == Assistant && e.MessageID != "" && e.Display == nil }

// continues reports whether e goes on with the message that is under way.
func (c *coalescer) continues(e Entry) bool {
	return isChunk(e) && c.first.ID != "" && c.first.MessageID == e.MessageID
}

// add takes the next entry of the branch.
func (c *coalescer) add(e Entry) error {
	if !c.continues(e) {
		if err := c.flush(); err != nil {
			return err
		}
		if !isChunk(e) {
			return c.next(e)
		}
		c.first = e
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(e.Content, &blocks); err != nil {
		return err
	}
	for i, b := range blocks {
		text, isText := plainText(b)
		if isText && c.isText && i == 0 {
			c.text = append(c.text, text...)
			continue
		}
		if err := c.endText(); err != nil {
			return err
		}
		if isText {
			c.text, c.isText = append(c.text, text...), true
		} else {
			c.blocks = append(c.blocks, b)
		}
	}
	if c.size += len(e.Content); c.size > maxCoalesced {
		first := c.first
		if err := c.flush(); err != nil {
			return err
		}
		c.first = first // the rest goes on under its id
	}
	return nil
}

// plainText is the text of a block that says nothing but its text.
func plainText(block json.RawMessage) (string, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(block, &members) != nil || len(members) != 2 || members["text"] == nil {
		return "", false
	}
	var b textBlock
	err := json.Unmarshal(block, &b)
	return b.Text, err == nil && b.Type == "text"
}

// endText makes the text under way a block.
func (c *coalescer) endText() error {
	if !c.isText {
		return nil
	}
	b, err := encodeJSON(textBlock{"text", string(c.text)})
	c.blocks, c.text, c.isText = append(c.blocks, b), c.text[:0], false
	return err
}

// flush passes on the message under way.
func (c *coalescer) flush() error {
	if err := c.endText(); err != nil {
		return err
	}
	e, blocks := c.first, c.blocks
	c.first, c.blocks, c.size = Entry{}, nil, 0
	if e.ID == "" || len(blocks) == 0 {
		return nil
	}
	var err error
	if e.Content, err = encodeJSON(blocks); err != nil {
		return err
	}
	return c.next(e)
}
