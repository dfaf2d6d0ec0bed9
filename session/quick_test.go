package session

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the quick look at content takes for blocks, encoding/json does too.
func TestTheQuickLookAtBlocksIsNeverWrong(t *testing.T) {
	usual := func(content []byte) bool {
		var blocks []textBlock
		if !json.Valid(content) || json.Unmarshal(content, &blocks) != nil || len(blocks) == 0 {
			return false
		}
		for _, b := range blocks {
			if b.Type == "" {
				return false
			}
		}
		return true
	}
	seeds := []string{
		`[{"type":"text","text":"so it is"}]`,
		`[{"type":"text","text":"a \"quoted\" \\"},{"type":"image","data":"[{]}","mimeType":"x/y"}]`,
		`[{"type":"text","text":"\u00e9\n\/\\\""}]`,
	}
	for _, s := range seeds {
		require.True(t, areBlocks([]byte(s)), s)
	}
	for _, s := range []string{
		`[]`, `[{}]`, `{}`, `null`, `[null]`, `[{"type":""}]`, `[{"type":5}]`, `[{"type":"a","type":""}]`, `[{"type":"a","text":5}]`,
		`[{"type":"a","Type":""}]`, `[{"type":"a","t\u0079pe":""}]`, `[{"type":"a","tex\u0074":5}]`, `[{"type":"a"}`, `[{"type":"a"}],`, `[{"type":"a"},]`, ` [{"type":"a"}]`,
		`[{"type":"a","text":"\x"}]`, `[{"type":"a","text":"\u12"}]`, `[{"type":"a","text":"\u12g4"}]`, "[{\"type\":\"a\",\"text\":\"\n\"}]", `[{"type":"a","text":"\"}]`,
	} {
		require.False(t, areBlocks([]byte(s)), s)
	}
	const bytesOf = "\"\\{}[],:textypTYP 05nuldefg/\n"
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		b := []byte(seeds[r.IntN(len(seeds))])
		for range 1 + r.IntN(3) {
			b[r.IntN(len(b))] = bytesOf[r.IntN(len(bytesOf))]
		}
		if areBlocks(b) {
			require.True(t, usual(b), "%s", b)
		}
	}
}

// A long entry's line is the one that encoding/json would make, but for white
// space of the client's own.
func TestALongEntryIsEncodedAsAnyOther(t *testing.T) {
	long := strings.Repeat(`<so> it "is", & \ `, 500)
	content, err := encodeRecord([]textBlock{{"text", long}})
	require.NoError(t, err)
	for _, c := range []json.RawMessage{content, bytes.Replace(content, []byte(`,"text"`), []byte(` , "text"`), 1), bytes.Replace(content, []byte(`,"text"`), []byte("\n,\"text\""), 1)} {
		r := &entryRecord{Type: "entry", ID: `,"content":0`, Role: Tool, CreatedAt: 5, Content: c, Display: content, ToolCallID: "t", Tool: json.RawMessage(`{"a":1}`)}
		require.Greater(t, len(r.Content), longContent)
		b, err := encodeRecord(r)
		require.NoError(t, err)
		require.NotContains(t, string(b), "\n")
		var flat bytes.Buffer
		require.NoError(t, json.Compact(&flat, b))
		short := *r
		short.Content = json.RawMessage(`"x"`)
		usual, err := encodeRecord(&short)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(string(usual), `"content":"x"`, `"content":`+string(content), 1), flat.String())
	}
}
