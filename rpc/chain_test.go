package rpc

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/session"
)

// newChain is a chain without a proxy behind it.
func newChain(out *bytes.Buffer) *chain {
	return &chain{in: newLineReader(strings.NewReader(""), 1<<20), out: &lineWriter{w: out, broken: func(error) {}}, log: zerolog.Nop(), prefix: "P-", asked: map[string]bool{}}
}

// Each line has one way, and comes out as it was said but for the envelope and
// the ids of the other side.
func TestTheLinesOfAChain(t *testing.T) {
	t.Parallel()
	c := newChain(new(bytes.Buffer))
	for _, x := range []struct{ in, to, want string }{
		{`{"jsonrpc":"2.0","id":0,"method":"proxy/initialize","params":{"protocolVersion":1}}`, "client", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`},
		{`{"id":"a", "method":"session/prompt","params":{"sessionId":"s"},"more":1}`, "client", `{"id":"a", "method":"session/prompt","params":{"sessionId":"s"},"more":1}`},
		{`{"id":7,"method":"proxy/successor","params":{"params":{ "b":[1, 2.50]},"method":"fs\/read","meta":{"x":1}}}`, "agent", `{"jsonrpc":"2.0","id":7,"method":"fs\/read","params":{ "b":[1, 2.50]}}`},
		{`{"method":"proxy/successor","params":{"method":"session/update"}}`, "agent", `{"jsonrpc":"2.0","method":"session/update"}`},
		{`{"method":"$/cancel_request","params":{"requestId":7}}`, "agent", `{"method":"$/cancel_request","params":{"requestId":7}}`},
		{`{"method":"$/cancel_request","params":{"requestId":8}}`, "client", `{"method":"$/cancel_request","params":{"requestId":8}}`},
		{`{"id":"P-5","result":{"a":1}}`, "agent", `{"id":5,"result":{"a":1}}`},
		{`{"id":"P-\"5\"","error":{"code":1}}`, "agent", `{"id":"5","error":{"code":1}}`},
		{`{"id":5,"result":{"a":1}}`, "client", `{"id":5,"result":{"a":1}}`},
		{`{"id":null,"error":{"code":-32700}}`, "client", `{"id":null,"error":{"code":-32700}}`},
		{`no message`, "client", `no message`},
	} {
		got, right := c.sort([]byte(x.in))
		require.Equal(t, x.want, string(got))
		require.Equal(t, x.to == "agent", right, x.in)
	}
	for _, x := range []struct{ in, want string }{
		{`{"id":5,"method":"session/new","params":{ "cwd":"/w"},"more":1}`, `{"jsonrpc":"2.0","id":"P-5","method":"proxy/successor","params":{"method":"session/new","params":{ "cwd":"/w"}}}`},
		{`{"method":"session/cancel","id":"5"}`, `{"jsonrpc":"2.0","id":"P-\"5\"","method":"proxy/successor","params":{"method":"session/cancel"}}`},
		{`{"method":"session/cancel","params":{}}`, `{"jsonrpc":"2.0","method":"proxy/successor","params":{"method":"session/cancel","params":{}}}`},
		{`{"method":"$/cancel_request","params":{"requestId":"5"}}`, `{"method":"$/cancel_request","params":{"requestId":"P-\"5\""}}`},
		{`{"id":7,"result":{}}`, `{"id":7,"result":{}}`},
	} {
		require.Equal(t, x.want, string(c.toRight([]byte(x.in))))
	}
	got, right := c.sort([]byte(`{"method":"$/cancel_request","params":{"requestId":7}}`))
	require.False(t, right, "it was answered: %s", got)

	// An older conductor is spoken to as it speaks.
	got, _ = c.sort([]byte(`{"id":0,"method":"_proxy/initialize"}`))
	require.Equal(t, `{"id":0,"method":"initialize"}`, string(got))
	require.Equal(t, `{"jsonrpc":"2.0","method":"_proxy/successor","params":{"method":"x"}}`, string(c.toRight([]byte(`{"method":"x"}`))))
	got, right = c.sort([]byte(`{"id":1,"method":"_proxy/successor","params":{"method":"x"}}`))
	require.True(t, right)
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"method":"x"}`, string(got))
}

// A line that nobody can hold is answered, or its answer is one that says so.
func TestALineOfAChainThatIsTooLong(t *testing.T) {
	t.Parallel()
	out := new(bytes.Buffer)
	c := newChain(out)
	require.Nil(t, c.instead([]byte(`{"id":3,"method":"session/prompt","params":{"prompt":"and so`)))
	c.out.flush()
	require.Contains(t, out.String(), `"id":3,"error"`)
	got, right := c.sort(c.instead([]byte(`{"id":"P-5","result":{"text":"and so`)))
	require.True(t, right)
	require.Contains(t, string(got), `"id":5,"error"`)
}

// A client that says more than the proxy takes does not keep it from hearing
// the agent.
func TestAChainDoesNotWaitForTheProxy(t *testing.T) {
	t.Parallel()
	in, conductor := io.Pipe()
	config := WrapConfig{Config: Config{In: in, Out: io.Discard, Log: zerolog.Nop(), Limits: session.DefaultLimits}}
	a, err := joinChain(&config)
	require.NoError(t, err)
	for range 1000 { // nobody reads what the client says
		_, err := io.WriteString(conductor, `{"method":"x"}`+"\n")
		require.NoError(t, err)
	}
	_, err = io.WriteString(conductor, `{"method":"proxy/successor","params":{"method":"y"}}`+"\n")
	require.NoError(t, err)
	heard, err := newLineReader(a.out, 1<<20).next()
	require.NoError(t, err)
	require.Equal(t, `{"jsonrpc":"2.0","method":"y"}`, string(heard.bytes))
	require.NoError(t, conductor.Close())
	client := newLineReader(config.In, 1<<20)
	for range 1000 {
		_, err = client.next()
		require.NoError(t, err)
	}
	_, err = client.next()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, a.out.Close())
}
