package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A field of the wrong type is named, with what it is and what it should be.
func TestWrongParamsNameTheField(t *testing.T) {
	for _, c := range []struct {
		p            any
		params, want string
	}{
		{new(SessionParams), `[]`, `params must be an object`},
		{new(SessionParams), `"x"`, `params must be an object`},
		{new(SessionParams), ``, `sessionId is missing`},
		{new(SessionParams), `null`, `sessionId is missing`},
		{new(SessionParams), `{}`, `sessionId is missing`},
		{new(SessionParams), `{"sessionId":null}`, `sessionId is missing`},
		{new(SessionParams), `{"sessionId":5}`, `sessionId must be a string, not a number`},
		{new(SessionParams), `{"sessionId":["s"]}`, `sessionId must be a string, not an array`},
		{new(InitializeParams), `{}`, `protocolVersion is missing`},
		{new(InitializeParams), `{"protocolVersion":"1"}`, `protocolVersion must be a whole number, not a string`},
		{new(InitializeParams), `{"protocolVersion":1,"clientCapabilities":{"_meta":{"oino":{"events":"yes"}}}}`,
			`clientCapabilities._meta.oino.events must be true or false, not a string`},
		{new(NewParams), `{"mcpServers":[]}`, `cwd is missing`},
		{new(NewParams), `{"cwd":"/w","mcpServers":{}}`, `mcpServers must be an array, not an object`},
		{new(NewParams), `{"cwd":"/w","additionalDirectories":[1]}`, `additionalDirectories must be a string, not a number`},
		{new(NewParams), `{"cwd":"/w","_meta":{"oino":{"tracking":["all"]}}}`, `_meta.oino.tracking must be a string, not an array`},
		{new(AppendParams), `{"sessionId":"s","entries":[{"role":"custom","content":"","id":""}]}`, `entries[0].id is empty; leave it out for one of ours`},
		{new(NewParams), `{"cwd":"/w","_meta":{"oino":{"persist":0}}}`, `_meta.oino.persist must be true or false, not a number`},
		{new(PromptParams), `{"sessionId":"s"}`, `prompt is missing`},
		{new(PromptParams), `{"sessionId":"s","prompt":"hi"}`, `prompt must be an array, not a string`},
		{new(PromptParams), `{"sessionId":"s","prompt":[7]}`, `prompt must be an object, not a number`},
		{new(PromptParams), `{"sessionId":"s","prompt":[{"text":"hi"}]}`, `a content block has no type`},
		{new(PromptParams), `{"sessionId":"s","prompt":[{"type":"text"}]}`, `a content block of type text has no text`},
		{new(PromptParams), `{"sessionId":"s","prompt":[{"type":"text","text":5}]}`, `prompt.text must be a string, not a number`},
		{new(PromptParams), `{"sessionId":"s","prompt":[{"type":"image","data":"x"}]}`, `a content block of type image has no mimeType`},
		{new(PromptParams), `{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"u"}}]}`,
			`a content block of type resource has no resource.text or resource.blob`},
		{new(AppendParams), `{"sessionId":"s"}`, `entries is missing or empty`},
		{new(AppendParams), `{"sessionId":"s","entries":[{"role":"model","content":""}]}`,
			`entries[0].role is "model", want one of user, assistant, tool, compaction, custom`},
		{new(AppendParams), `{"sessionId":"s","entries":[{"role":"user","content":"a"},{"role":"user"}]}`, `entries[1].content is missing`},
		{new(AppendParams), `{"sessionId":"s","entries":[{"role":"tool"}]}`, `entries[0].toolCallId is missing`},
		{new(AppendParams), `{"sessionId":"s","entries":[{"role":"tool","toolCallId":"c","status":1}]}`, `entries.status must be a string, not a number`},
		{new(AppendParams), `{"sessionId":"s","entries":[{"role":"user","content":7}]}`, `entries.content must be an array, not a number`},
		{new(EntriesParams), `{"sessionId":"s","limit":1.5}`, `limit must be a whole number, not 1.5`},
		{new(EntriesParams), `{"sessionId":"s","limit":-1}`, `limit is -1, want 0 or more`},
		{new(WriteParams), `{"sessionId":"s","path":"/p"}`, `content (or data, in base64) is missing`},
		{new(WriteParams), `{"sessionId":"s","path":"/p","content":"","data":""}`, `content and data are both given; a file has one of them`},
		{new(EditParams), `{"sessionId":"s","path":"/p","edits":[{"oldText":"a"}]}`, `edits[0].newText is missing`},
		{new(EditParams), `{"sessionId":"s","path":"/p","edits":[{"newText":"a"}]}`, `edits[0].oldText is missing`},
		{new(RewindParams), `{"sessionId":"s","entryId":"e","paths":[]}`, `paths is empty; leave it out for all`},
		{new(RewindParams), `{"sessionId":"s","entryId":"e","conversation":"drop"}`, `conversation is "drop", want one of keep, rewind, fork`},
		{new(RewindParams), `{"sessionId":"s","entryId":"e","fork":true,"conversation":"keep"}`,
			`fork is true and conversation is "keep": they contradict each other`},
		{new(RewindParams), `{"sessionId":"s","entryId":"e","dryRun":"true"}`, `dryRun must be true or false, not a string`},
		{new(LabelParams), `{"sessionId":"s","entryId":"e"}`, `label is missing`},
		{new(LabelParams), `{"sessionId":"s","entryId":"e","label":7}`, `label must be a string, not a number`},
		{new(StatePutParams), `{"sessionId":"s"}`, `state is missing`},
	} {
		err := Decode([]byte(c.params), c.p)
		require.EqualError(t, err, c.want, "%T %s", c.p, c.params)
		require.IsType(t, new(ParamsError), err)
	}
}

// What is not known is ignored; what only null can say is heard.
func TestRightParamsAreRead(t *testing.T) {
	var rewind RewindParams
	require.NoError(t, Decode([]byte(`{"sessionId":"s","entryId":"start","fork":true,"later":[1]}`), &rewind))
	require.Equal(t, RewindParams{SessionID: "s", EntryID: "start", Conversation: "fork", Fork: true}, rewind)

	var label LabelParams
	require.NoError(t, Decode([]byte(`{"sessionId":"s","entryId":"e","label":null}`), &label))
	require.Equal(t, Nullable[string]{Set: true, Null: true}, label.Label)

	var state StatePutParams
	require.NoError(t, Decode([]byte(`{"sessionId":"s","state":null}`), &state))
	require.Equal(t, "null", string(state.State))

	var write WriteParams
	require.NoError(t, Decode([]byte(`{"sessionId":"s","path":"/p","data":"AP8="}`), &write))
	data, err := write.Bytes()
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0xff}, data)
	*write.Data = "!"
	_, err = write.Bytes()
	require.ErrorContains(t, err, "data is not base64")
}

// Blocks keep what they hold, byte for byte, known or not.
func TestContentIsKeptAsItCame(t *testing.T) {
	const blocks = `[{"type":"text","text":"a <b>","x":1e400},{"type":"hologram","b":{"z":1,"a":2}}]`
	var p PromptParams
	require.NoError(t, Decode([]byte(`{"sessionId":"s","prompt":`+blocks+`}`), &p))
	require.Equal(t, blocks, string(p.Prompt.Raw()))
	require.Equal(t, "a <b>", p.Prompt.Text())

	var a AppendParams
	require.NoError(t, Decode([]byte(`{"sessionId":"s","entries":[{"role":"custom","content":"a <b>"}]}`), &a))
	require.Equal(t, `[{"type":"text","text":"a <b>"}]`, string(a.Entries[0].Content.Raw()))

	back, err := ParseBlocks(p.Prompt.Raw())
	require.NoError(t, err)
	require.Equal(t, p.Prompt, back)
}

// A list is never null, an absent thing is absent.
func TestResultsOnTheWire(t *testing.T) {
	for want, v := range map[string]any{
		`{"restored":[],"deleted":[],"cancelled":true,"reason":"no"}`: RewindResult{
			Restored: []string{}, Deleted: []string{}, Cancelled: true, Reason: "no"},
		`{"restored":[],"deleted":[],"cancelled":false,"files":[]}`: RewindResult{
			Restored: []string{}, Deleted: []string{}, Files: &[]FileDiff{}},
		`{"id":"e","parentId":null,"role":"user","createdAt":1,"content":[]}`: Entry{ID: "e", Role: "user", CreatedAt: 1, Content: []byte("[]")},
		`{"stopReason":"cancelled"}`:                                          PromptResult{StopReason: Cancelled},
		`{"type":"text","text":"<&>"}`:                                        TextBlock("<&>"),
	} {
		got, err := Encode(v)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestHalfASurrogatePairIsNoPath(t *testing.T) {
	for raw, bad := range map[string]bool{
		`{"sessionId":"s","paths":["/w/\udcff"]}`:         true,
		`{"sessionId":"s","paths":["/w/\ud800"]}`:         true,
		`{"sessionId":"s","paths":["/w/\ud83d\u0041"]}`:   true,
		`{"sessionId":"s","paths":["/w/\ud83d\ude00"]}`:   false,
		`{"sessionId":"s","paths":["/w/\\udcff"]}`:        false,
		`{"sessionId":"s","paths":["/w/\u00e4\u0041\\"]}`: false,
	} {
		var p RecordParams
		err := Decode([]byte(raw), &p)
		if bad {
			require.ErrorContains(t, err, "surrogate", raw)
		} else {
			require.NoError(t, err, raw)
		}
	}
}
