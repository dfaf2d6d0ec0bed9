package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBranchThatARewindLeftIsStillThere(t *testing.T) {
	b := newBox(t)
	b.put("a", "a0")
	s := b.create(false)
	u1 := b.prompt(s, "one")
	a1 := b.append(s, Assistant, "first")
	u2 := b.prompt(s, "two")
	b.write(s, "a", "a2")
	a2 := b.append(s, Assistant, "second")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: u2, Conversation: RewindConversation})
	u3 := b.prompt(s, "another two")
	b.write(s, "a", "a3")
	require.NoError(t, s.Label(t.Context(), u3, "better"))
	for range 2 { // while it is open here, and afterwards
		v := b.view(s.ID())
		require.Equal(t, []string{u1, a1, u3}, b.shows(v, false))
		require.Equal(t, []string{u1, a1, u2, a2, u3}, b.shows(v, true))
		require.Equal(t, u3, v.LeafID)
		left := map[string]bool{}
		require.NoError(t, v.Each(t.Context(), true, func(e ViewEntry) error {
			left[e.ID] = e.Left
			if e.ID == u3 {
				require.Equal(t, "better", e.Label)
				require.Equal(t, []CheckpointFile{{Path: b.path("a"), Existed: true}}, e.Checkpoint.Files)
			} else if e.ID != u1 {
				require.Nil(t, e.Checkpoint, e.ID)
			}
			return nil
		}))
		require.Equal(t, map[string]bool{u1: false, a1: false, u2: true, a2: true, u3: false}, left)
		b.shut()
	}
}

// say appends assistant entries, each one of the messageIds and texts.
func (b *box) say(s *Session, chunks ...string) []string {
	b.t.Helper()
	var entries []NewEntry
	for _, c := range chunks {
		message, text, _ := strings.Cut(c, ":")
		content, err := encodeRecord([]textBlock{{"text", text}})
		require.NoError(b.t, err)
		entries = append(entries, NewEntry{Role: Assistant, Content: content, MessageID: message})
	}
	ids, err := s.Append(b.t.Context(), entries)
	require.NoError(b.t, err)
	return ids
}

// messages are what a replay tells: ids with their content's text.
func (b *box) messages(s *Session) []string {
	b.t.Helper()
	var all []string
	require.NoError(b.t, s.Replay(b.t.Context(), func(e Entry) error {
		all = append(all, string(e.Role)+" "+e.ID+" "+blocksText(e.Content))
		return nil
	}))
	return all
}

func TestChunksOfOneMessageComeAsOne(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	u := b.prompt(s, "hi")
	one := b.say(s, "m1:Hel", "m1:lo", "m1: there")
	two := b.say(s, "m2:And on")
	plain := b.say(s, ":first", ":second")
	same := b.say(s, "m3:before the tool")
	tool, err := s.Append(t.Context(), []NewEntry{{Role: Tool, ToolCallID: "t", Status: "completed", Content: []byte("[]")}})
	require.NoError(t, err)
	after := b.say(s, "m3:after it")
	image := `{"type":"image","data":"AA==","mimeType":"image/png"}`
	mixed, err := s.Append(t.Context(), []NewEntry{
		{Role: Assistant, MessageID: "m4", Content: []byte(`[{"type":"text","text":"see "},` + image + `]`)},
		{Role: Assistant, MessageID: "m4", Content: []byte(`[{"type":"text","text":"th"}]`)},
		{Role: Assistant, MessageID: "m4", Content: []byte(`[{"type":"text","text":"is"},{"type":"text","text":"x","annotations":{}}]`)},
	})
	require.NoError(t, err)
	want := []string{
		"user " + u + " hi",
		"assistant " + one[0] + " Hello there",
		"assistant " + two[0] + " And on",
		"assistant " + plain[0] + " first", "assistant " + plain[1] + " second", // who says nothing says two messages
		"assistant " + same[0] + " before the tool", "tool " + tool[0] + " ", "assistant " + after[0] + " after it",
		"assistant " + mixed[0] + " see \nthis\nx",
	}
	require.Equal(t, want, b.messages(s))
	s = b.restart(s)
	require.Equal(t, want, b.messages(s))
	var last Entry
	require.NoError(t, s.Replay(t.Context(), func(e Entry) error { last = e; return nil }))
	require.JSONEq(t, `[{"type":"text","text":"see "},`+image+`,{"type":"text","text":"this"},{"type":"text","text":"x","annotations":{}}]`, string(last.Content))

	// All of them are entries all the same.
	page, err := s.Entries(t.Context(), EntriesQuery{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 13)
	require.Equal(t, "m1", page.Entries[2].MessageID)
	texts := []string{}
	require.NoError(t, b.view(s.ID()).Messages(t.Context(), false, func(e ViewEntry) error {
		texts = append(texts, string(e.Role)+" "+e.ID+" "+blocksText(e.Content))
		return nil
	}))
	require.Equal(t, want, texts)
	_, err = s.Append(t.Context(), []NewEntry{{Role: Assistant, Content: []byte(`"x"`), MessageID: strings.Repeat("m", 129)}})
	refused(t, BadParams, err)
}

func TestALongMessageIsReplayedInParts(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	b.prompt(s, "hi")
	var first string
	for i := range 5 {
		ids := b.say(s, "m:"+strings.Repeat(fmt.Sprint(i), maxCoalesced/2))
		if i == 0 {
			first = ids[0]
		}
	}
	var text strings.Builder
	parts := 0
	require.NoError(t, s.Replay(t.Context(), func(e Entry) error {
		if e.Role == Assistant {
			require.Equal(t, first, e.ID)
			require.LessOrEqual(t, len(e.Content), 2*maxCoalesced)
			text.WriteString(blocksText(e.Content))
			parts++
		}
		return nil
	}))
	require.Equal(t, 3, parts)
	require.Equal(t, 5*(maxCoalesced/2), text.Len())
}

func (b *box) compact(s *Session, summary, keepFrom string) string {
	b.t.Helper()
	ids, err := s.Append(b.t.Context(), []NewEntry{{Role: Compaction, Summary: summary, KeepFrom: keepFrom, TokensBefore: 100, TokensAfter: 10}})
	require.NoError(b.t, err)
	return ids[0]
}

// context is what the model should see, and all that there is.
func (b *box) context(s *Session) (model, all []string) {
	b.t.Helper()
	for _, context := range []bool{true, false} {
		page, err := s.Entries(b.t.Context(), EntriesQuery{Context: context})
		require.NoError(b.t, err)
		for _, e := range page.Entries {
			if context {
				model = append(model, e.ID)
			} else {
				all = append(all, e.ID)
			}
		}
	}
	return model, all
}

func TestACompactionStandsForWhatItReplaced(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	u1 := b.prompt(s, "one")
	a1 := b.append(s, Assistant, "first")
	u2 := b.prompt(s, "two")
	a2 := b.append(s, Assistant, "second")
	c1 := b.compact(s, "they said hello", u2)
	u3 := b.prompt(s, "three")
	tool, err := s.Append(t.Context(), []NewEntry{{Role: Tool, ToolCallID: "t", Status: "pending", Content: []byte("[]")}})
	require.NoError(t, err)

	model, all := b.context(s)
	require.Equal(t, []string{c1, u2, a2, u3}, model, "summary, kept, later, and no call without a result")
	require.Equal(t, []string{u1, a1, u2, a2, c1, u3, tool[0]}, all)

	c2 := b.compact(s, "and more", "")
	model, _ = b.context(s)
	require.Equal(t, []string{c2}, model, "nothing is kept that is not said to be")
	u4 := b.prompt(s, "four")
	c3 := b.compact(s, "all of it", u3)
	model, _ = b.context(s)
	require.Equal(t, []string{c3, u3, tool[0], u4}, model, "an older summary is part of what the newer one says")

	// Before the compactions the old context is there again.
	s = b.restart(s)
	fork := b.fork(s, a2)
	model, all = b.context(fork)
	require.Equal(t, []string{u1, a1, u2, a2}, model)
	require.Equal(t, model, all)
	b.rewind(s, RewindParams{EntryID: u3, Conversation: RewindConversation})
	model, _ = b.context(s)
	require.Equal(t, []string{c1, u2, a2}, model)
	b.rewind(s, RewindParams{EntryID: u2, Conversation: RewindConversation})
	model, _ = b.context(s)
	require.Equal(t, []string{u1, a1}, model)
	s = b.restart(s)
	model, _ = b.context(s)
	require.Equal(t, []string{u1, a1}, model)
}

// F7: a session whose last tool call was cut off is forked; the fork holds it
// and loads, and the model is told of it by neither.
func TestF7ACutOffToolCall(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		b := newBox(t)
		s := b.create(inMemory)
		u := b.prompt(s, "go")
		a := b.append(s, Assistant, "I will look")
		told := []string{u, a}
		for _, status := range []string{"pending", "in_progress"} {
			ids, err := s.Append(t.Context(), []NewEntry{{Role: Tool, ToolCallID: "call", Status: status, Content: json.RawMessage("[]")}})
			require.NoError(t, err)
			told = append(told, ids...)
		}
		if !inMemory {
			s = b.restart(s)
		}
		require.Equal(t, told, b.replayed(s))
		fork := b.fork(s, "")
		if !inMemory {
			fork = b.restart(fork)
		}
		require.Equal(t, told, b.replayed(fork))
		model, all := b.context(fork)
		require.Equal(t, []string{u, a}, model)
		require.Len(t, all, 4, "it is kept")
		_, err := fork.Append(t.Context(), []NewEntry{{Role: Tool, ToolCallID: "call", Status: "completed", Content: json.RawMessage("[]")}})
		require.NoError(t, err)
		require.Len(t, b.replayed(fork), 5, "its result makes it whole")
	}
}
