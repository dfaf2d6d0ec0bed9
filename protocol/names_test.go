package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A member that only looks like one that is known is unknown: it is ignored,
// wherever it stands, and overrides nothing.
func TestNamesAreExact(t *testing.T) {
	var r RewindParams
	require.NoError(t, Decode([]byte(`{"SESSIONID":"B","sessionId":"A","sessionid":"C","entryId":"e","DRYRUN":false,"dryRun":true,"DryRun":false}`), &r))
	require.Equal(t, RewindParams{SessionID: "A", EntryID: "e", DryRun: true}, r)
	require.ErrorContains(t, Decode([]byte(`{"sessionid":"A","entryId":"e"}`), new(RewindParams)), "sessionId is missing")
	// Of the same name twice the last one counts, however it is spelled.
	r = RewindParams{}
	require.NoError(t, Decode([]byte(`{"sessionId":"A","s\u0065ssionId":"B","ſessionId":"C","\u0053essionId":"D","entryId":"e"}`), &r))
	require.Equal(t, "B", r.SessionID)

	var e EditParams
	require.NoError(t, Decode([]byte(`{"sessionId":"A","path":"/p","edits":[{"oldText":"o","newText":"n","NEWTEXT":"N"},{"oldText":"o","OLDTEXT":7,"newText":"n","replaceall":true}]}`), &e))
	require.Equal(t, "n", *e.Edits[0].NewText)
	require.Equal(t, "o", *e.Edits[1].OldText)
	require.False(t, e.Edits[1].ReplaceAll)

	var a AppendParams
	require.NoError(t, Decode([]byte(`{"sessionId":"A","entries":[{"role":"tool","Role":"user","toolCallId":"c","TOOLCALLID":"d","content":[{"type":"text","text":"a","TEXT":"b"}]}],"Entries":[]}`), &a))
	require.Equal(t, "tool", a.Entries[0].Role)
	require.Equal(t, "c", a.Entries[0].ToolCallID)
	require.Equal(t, "a", a.Entries[0].Content.Text())
	require.JSONEq(t, `[{"type":"text","text":"a","TEXT":"b"}]`, string(a.Entries[0].Content.Raw()), "it is kept as it came")
	require.ErrorContains(t, Decode([]byte(`{"sessionId":"A","prompt":[{"Type":"text","text":"x"}]}`), new(PromptParams)), "has no type")

	var n NewParams
	require.NoError(t, Decode([]byte(`{"cwd":"/w","_META":{"oino":{"tracking":"no"}},"_meta":{"oino":{"tracking":"files","Tracking":"workspace","PERSIST":false},"OINO":null}}`), &n))
	require.Equal(t, "files", n.Meta.Of().Tracking)
	require.Nil(t, n.Meta.Of().Persist)

	var l LabelParams
	require.NoError(t, Decode([]byte(`{"sessionId":"A","entryId":"e","label":"x","LABEL":null}`), &l))
	require.Equal(t, Nullable[string]{Set: true, Value: "x"}, l.Label)
}

// What is left alone is not copied, and what is deep or no JSON is no trouble.
func TestNamesOfAnything(t *testing.T) {
	deep := strings.Repeat("[", 1<<20)
	for _, params := range []string{
		`{"sessionId":"A","entries":[{"role":"user","content":"x"}]}`, `{ "sessionId" : "A" , "x" : [ 1 , {"SESSIONID":2} ] }`,
		`{"sessionId":` + deep, `{"entries":` + deep, `{"entries":[{"content":` + deep, `{"entries":[[[{"Role":1}]]]}`,
		`{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"\`, `{"entries":[`, `{"entries":[{`, `{"entries":[,,]`, `{,}`, `{"sessionId"}`, `{"a":}`,
	} {
		got := exactly([]byte(params), new(AppendParams))
		require.Equal(t, params, string(got))
		require.Error(t, Decode([]byte(params), new(StatePutParams)))
	}
	in := []byte(`{"sessionID":"A","SESSIONID":"B"}`)
	kept := bytes.Clone(in)
	out := exactly(in, new(SessionParams))
	require.Equal(t, kept, in, "the line is not changed")
	require.True(t, json.Valid(out))
	require.NotContains(t, strings.ToLower(string(out)), "sessionid")
}
