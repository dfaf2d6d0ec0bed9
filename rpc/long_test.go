package rpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheEndsOfALine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", headBytes+tailBytes)
	for _, c := range []struct{ line, want string }{
		{`{"id":1,"result":{"a":"LONG"}}`, `{"id":1,"result":null}`},
		{`{"jsonrpc":"2.0","result":{"a":"LONG"},"id":1}`, `{"jsonrpc":"2.0","result":null,"id":1}`},
		{` { "result" : "LONG" , "jsonrpc" : "2.0" , "id" : "a\\\"b\\" } ` + "\r", `{"result":null,"jsonrpc" : "2.0" , "id" : "a\\\"b\\" }`},
		{`{"result":"LONG","id":-7,"error":null}`, `{"result":null,"id":-7,"error":null}`},
		{`{"result":"LONG","id":1,"_meta":{}}`, `{"result":null}`},
		{`{"result":"LONG\",\"id\":1"}`, `{"result":null}`},
		{`{"result":{"a":"LONG","id":1}}`, `{"result":null}`},
		{`{"result":["LONG",",\"id\":1"]}`, `{"result":null}`},
		{`{"a\"b":"LONG"}`, `{"a\"b":null}`},
		{`{"LONG":1,"id":2}`, `{"id":2}`},
		{`{"LONG":1}`, `{}`},
		{`{"result":"LONG` + strings.Repeat(`\`, tailBytes) + `","id":1}`, `{"result":null,"id":1}`},
	} {
		line := strings.Replace(c.line, "LONG", long, 1)
		read, err := newLineReader(strings.NewReader(line+"\n"), headBytes).next()
		require.NoError(t, err)
		require.True(t, read.tooLong)
		require.Equal(t, c.want, string(read.bytes), c.line)
	}
}

// Whatever the agent says at too great a length, nobody waits for it.
func TestAnAnswerThatIsTooLong(t *testing.T) {
	t.Parallel()
	const refused = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"the message is longer than 67108864 bytes (limits.maxMessageBytes)","data":{"kind":"message_too_large"}}}` + "\n"
	for _, c := range []struct {
		ends     string
		answered []string
	}{
		{`{"jsonrpc":"2.0","result":null,"id":"1"}`, []string{`"1"`}},
		{`{"jsonrpc":"2.0","result":null}`, []string{"1", `"1"`}}, // nobody knows which
		{`{"error":null}`, []string{"1", `"1"`}},
		{`{"jsonrpc":"2.0","result":null,"id":7}`, nil},
		{`{"jsonrpc":"2.0","method":"session/update","params":null}`, nil},
		{`{"params":null}`, nil}, // perhaps an update
	} {
		p := newBetween(t)
		p.clientSays([]byte(`{"jsonrpc":"2.0","id":1,"method":"fake/a"}`))
		p.clientSays([]byte(`{"jsonrpc":"2.0","id":"1","method":"fake/b"}`))
		p.dropLong([]byte(c.ends))
		p.settle()
		var want []string
		for _, id := range c.answered {
			want = append(want, fmt.Sprintf(refused, id))
		}
		require.ElementsMatch(t, append(want, ""), strings.SplitAfter(told(p.client), "\n"), c.ends)
	}
}
