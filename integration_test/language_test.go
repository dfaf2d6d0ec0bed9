//go:build unix

package integration

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpectationsCanFail: a line that expects something says no where it
// should; a test language that always agrees would prove nothing.
func TestExpectationsCanFail(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{`{"a":1}`, `{"a":1,"b":2}`, true},
		{`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"a":null}`, `{"b":1}`, true},
		{`{"a":null}`, `{"a":0}`, false},
		{`{"a":"…"}`, `{"a":false}`, true},
		{`{"a":"…"}`, `{}`, false},
		{`{"a":"~lo w"}`, `{"a":"hello world"}`, true},
		{`{"a":"~low"}`, `{"a":"hello world"}`, false},
		{`{"a":[1,2]}`, `{"a":[1,2]}`, true},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":[1]}`, `{"a":[1,2]}`, false},
		{`{"a":[]}`, `{}`, false},
		{`{"deleted":["x","y"]}`, `{"deleted":["y","x"]}`, true},
		{`{"deleted":["x","x"]}`, `{"deleted":["x","y"]}`, false},
		{`{"files":[{"path":"x"},{"path":"y"}]}`, `{"files":[{"path":"y"},{"path":"x"}]}`, false},
		{`{"files":[{"path":"x","change":"created"},{"path":"y"}]}`, `{"files":[{"path":"y"},{"path":"x","change":"created"}]}`, true},
		{`{"restored":[]}`, `{"restored":[],"deleted":[]}`, true},
		{`{"restored":[]}`, `{"restored":[],"failed":[{"path":"x"}]}`, false},
		{`{"restored":[]}`, `{"restored":[],"unchecked":["x"]}`, false},
		{`{"restored":[]}`, `{"restored":[],"remaining":0}`, true},
		{`{"restored":[]}`, `{"restored":[],"remaining":1}`, false},
	} {
		var want, got any
		require.NoError(t, json.Unmarshal([]byte(c.want), &want))
		require.NoError(t, json.Unmarshal([]byte(c.got), &got))
		err := hold("", want, got, map[string]string{})
		require.Equal(t, c.ok, err == nil, "%s against %s: %v", c.want, c.got, err)
	}
	captured := map[string]string{}
	require.NoError(t, hold("", map[string]any{"id": "$NEW"}, map[string]any{"id": "x"}, captured))
	require.Equal(t, "x", captured["NEW"])
}

// TestStdoutIsReadStrictly: what a strict client would choke on is a fault.
func TestStdoutIsReadStrictly(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n":                                  true,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}` + "\n":     true,
		`{"jsonrpc":"2.0","method":"session/update","params":{}}` + "\n":               true,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                         false,
		`{"id":1,"result":{}}` + "\n":                                                  false,
		`{"jsonrpc":"2.0","result":{}}` + "\n":                                         false,
		`{"jsonrpc":"2.0","id":1}` + "\n":                                              false,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}` + "\n": false,
		`[{"jsonrpc":"2.0","id":1,"result":{}}]` + "\n":                                false,
		"listening\n": false,
		"\n":          false,
	} {
		_, err := parseMessage([]byte(line))
		require.Equal(t, ok, err == nil, "%q: %v", line, err)
	}
}
