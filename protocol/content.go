package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Block is one ACP content block, kept as the bytes that came: what it holds
// beyond the few fields that are checked here goes through untouched, and so
// does a type that ACP adds later.
type Block json.RawMessage

// blockFields are the fields of all block types whose types are checked.
type blockFields struct {
	Type     *string         `json:"type"`
	Text     *string         `json:"text"`
	Data     *string         `json:"data"`
	MimeType *string         `json:"mimeType"`
	Name     *string         `json:"name"`
	URI      *string         `json:"uri"`
	Resource *resourceFields `json:"resource"`
}

type resourceFields struct {
	URI  *string `json:"uri"`
	Text *string `json:"text"`
	Blob *string `json:"blob"`
}

// UnmarshalJSON keeps b if it is a content block.
func (c *Block) UnmarshalJSON(b []byte) error {
	var f blockFields
	if err := json.Unmarshal(exactly(b, &f), &f); err != nil {
		return err
	}
	if f.Type == nil || *f.Type == "" {
		return wrong("a content block has no type")
	}
	missing := func(field string) error { return wrong("a content block of type %s has no %s", *f.Type, field) }
	switch *f.Type {
	case "text":
		if f.Text == nil {
			return missing("text")
		}
	case "image", "audio":
		if f.Data == nil {
			return missing("data")
		}
		if f.MimeType == nil {
			return missing("mimeType")
		}
	case "resource_link":
		if f.Name == nil {
			return missing("name")
		}
		if f.URI == nil {
			return missing("uri")
		}
	case "resource":
		if f.Resource == nil {
			return missing("resource")
		}
		if f.Resource.URI == nil {
			return missing("resource.uri")
		}
		if f.Resource.Text == nil && f.Resource.Blob == nil {
			return missing("resource.text or resource.blob")
		}
	}
	*c = append((*c)[:0], b...)
	return nil
}

// MarshalJSON gives the bytes back.
func (c Block) MarshalJSON() ([]byte, error) { return json.RawMessage(c).MarshalJSON() }

// Text is the block's text; ok is false for a block of another type.
func (c Block) Text() (text string, ok bool) {
	var f blockFields
	if json.Unmarshal(exactly(c, &f), &f) != nil || f.Type == nil || *f.Type != "text" || f.Text == nil {
		return "", false
	}
	return *f.Text, true
}

// TextBlock is a block of type text.
func TextBlock(text string) Block {
	b, _ := Encode(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text}) // two strings can always be encoded
	return Block(b)
}

// Blocks is a message's content.
type Blocks []Block

// Raw is the content as one JSON array.
func (c Blocks) Raw() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, block := range c {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(block)
	}
	b.WriteByte(']')
	return b.Bytes()
}

// Text is the text of the text blocks, a line break between two.
func (c Blocks) Text() string {
	var texts []string
	for _, block := range c {
		if text, ok := block.Text(); ok {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// ParseBlocks reads an array of content blocks that was kept.
func ParseBlocks(content json.RawMessage) (Blocks, error) {
	if len(content) == 0 {
		return nil, nil
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, err
	}
	out := make(Blocks, len(blocks))
	for i, b := range blocks {
		out[i] = Block(b)
	}
	return out, nil
}

// Content is Blocks, or a string that stands for one text block.
type Content struct{ Blocks }

// UnmarshalJSON reads either.
func (c *Content) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		c.Blocks = Blocks{TextBlock(text)}
		return nil
	}
	return json.Unmarshal(b, &c.Blocks)
}

// Encode is json.Marshal without the escaping of <, > and & that only web
// pages need.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
