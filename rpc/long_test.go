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

// Whatever the agent says at too great a length, nobody waits for it, and the
// agent does not where it asked.
func TestAnAnswerThatIsTooLong(t *testing.T) {
	t.Parallel()
	const refused = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"the message is longer than 67108864 bytes (limits.maxMessageBytes)","data":{"kind":"message_too_large"}}}` + "\n"
	for _, c := range []struct {
		ends             string
		prompts          bool // there are no other requests
		answered, agents []string
	}{
		{ends: `{"jsonrpc":"2.0","result":null,"id":"1"}`, answered: []string{`"1"`}},
		{ends: `{"jsonrpc":"2.0","result":null}`, answered: []string{"1", `"1"`}}, // nobody knows which
		{ends: `{"error":null}`, answered: []string{"1", `"1"`}},
		{ends: `{"error":null}`, prompts: true, answered: []string{"2"}},
		{ends: `{"jsonrpc":"2.0","result":null,"id":7}`},
		{ends: `{"error":null,"id":null}`}, // to no request at all
		{ends: `{"jsonrpc":"2.0","method":"session/update","params":null}`},
		{ends: `{"params":null}`}, // perhaps an update
		{ends: `{"id":1,"params":null}`, agents: []string{"1"}},
		{ends: `{"id":1,"method":"fs/read_text_file"}`, agents: []string{"1"}},
	} {
		p := newBetween(t)
		if !c.prompts {
			p.clientSays([]byte(`{"jsonrpc":"2.0","id":1,"method":"fake/a"}`))
			p.clientSays([]byte(`{"jsonrpc":"2.0","id":"1","method":"fake/b"}`))
		}
		p.clientSays([]byte(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"nobody's"}}`))
		p.settle()
		_ = told(p.agent)
		p.dropLong([]byte(c.ends))
		p.settle()
		lines := func(ids []string) (all []string) {
			for _, id := range ids {
				all = append(all, fmt.Sprintf(refused, id))
			}
			return append(all, "")
		}
		require.ElementsMatch(t, lines(c.answered), strings.SplitAfter(told(p.client), "\n"), c.ends)
		require.ElementsMatch(t, lines(c.agents), strings.SplitAfter(told(p.agent), "\n"), c.ends)
	}
}
