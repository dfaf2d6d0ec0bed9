package rpc

import (
	"fmt"
	"io"
	"testing"
)

// BenchmarkUpdate is what it takes to pass on one update of a turn, the log
// included.
func BenchmarkUpdate(b *testing.B) {
	p := newBetween(b)
	p.clientOut.w, p.agentOut.w = io.Discard, io.Discard
	p.clientSays(fmt.Appendf(nil, `{"id":1,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`, b.TempDir()))
	p.agentSays([]byte(`{"id":1,"result":{"sessionId":"s"}}`))
	p.clientSays([]byte(`{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go"}]}}`))
	p.settle()
	update := []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` +
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"so it is so it is so it is so it is so it is so it is so it is so it is so it is so it is so it\nis"}}}}` + "\n")
	b.SetBytes(int64(len(update)))
	b.ReportAllocs()
	p.fromAgent = newLineReader(&lineSource{line: update, left: b.N}, 1<<20)
	b.ResetTimer()
	p.readAgent()
	p.settle()
}
