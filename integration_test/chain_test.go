//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A conductor of a proxy chain, as small as it gets: this test binary, started
// again. It is an agent to the client, and starts the two components of its
// chain, oinod and the scripted agent. Whatever they say goes through it.
const conductorArgument = "conductor"

func init() {
	if len(os.Args) > 5 && os.Args[1] == conductorArgument {
		os.Exit(conduct(os.Args[2], os.Args[3], os.Args[4], os.Args[5:]))
	}
}

// conductor is who is in the chain, from left to right, and which requests of
// theirs have no answer.
type conductor struct {
	underscore string // before the names of the methods of the chain
	sides      [3]io.Writer
	record     *os.File

	mu      sync.Mutex
	pending map[string]pendingRequest
	last    int
}

type pendingRequest struct {
	from int // 0 the client, 1 the proxy, 2 the agent
	id   json.RawMessage
}

// chainMessage is any message, with its members as they are.
type chainMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// successorParams is what is in an envelope.
type successorParams struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

func conduct(underscore, record, oinod string, options []string) int {
	c := &conductor{underscore: strings.TrimPrefix(underscore, "-"), pending: map[string]pendingRequest{}}
	file, err := os.Create(record)
	if err != nil {
		return 1
	}
	c.record = file
	self, _ := os.Executable()
	c.sides[0] = os.Stdout
	var outs [3]io.Reader
	outs[0] = os.Stdin
	var ins []io.Closer
	var children []*exec.Cmd
	for i, argv := range [][]string{{oinod, "wrap", "--track=files", "--proxy"}, append([]string{self, fakeArgument}, options...)} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr = os.Stderr
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		c.sides[i+1], outs[i+1] = in, out
		ins, children = append(ins, in), append(children, cmd)
	}
	var work sync.WaitGroup
	for from := 1; from < 3; from++ {
		work.Go(func() { c.read(from, outs[from]) })
	}
	c.read(0, outs[0])
	for i := range ins { // from left to right
		ins[i].Close()
	}
	work.Wait()
	for i, child := range children {
		if err := child.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "component", i, err)
			return 3
		}
	}
	return 0
}

// read takes what one of them says.
func (c *conductor) read(from int, r io.Reader) {
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m chainMessage
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		c.mu.Lock()
		fmt.Fprintf(c.record, "%d %s", from, line)
		c.route(from, m)
		c.mu.Unlock()
	}
}

// route passes a message on.
func (c *conductor) route(from int, m chainMessage) {
	var to int
	successor := c.underscore + "proxy/successor"
	switch {
	case m.Method == "": // an answer
		p := c.pending[string(m.ID)]
		delete(c.pending, string(m.ID))
		to, m.ID = p.from, p.id
	case m.Method == "$/cancel_request": // of a request to the conductor
		var params struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		json.Unmarshal(m.Params, &params)
		for id, p := range c.pending {
			if p.from == from && string(p.id) == string(params.RequestID) {
				m.Params = json.RawMessage(fmt.Sprintf(`{"requestId":%s}`, id))
				to = map[int]int{0: 1, 1: 0, 2: 1}[from]
			}
		}
		if from == 1 && strings.Contains(string(params.RequestID), "-right-") {
			to = 2
		}
	case from == 0 && m.Method == "initialize":
		to, m.Method = 1, c.underscore+"proxy/initialize"
	case from == 0:
		to = 1
	case from == 1 && m.Method == successor:
		var inner successorParams
		json.Unmarshal(m.Params, &inner)
		to, m.Method, m.Params = 2, inner.Method, inner.Params
	case from == 2:
		to = 1
		params, _ := json.Marshal(successorParams{m.Method, m.Params})
		m.Method, m.Params = successor, params
	}
	if m.Method != "" && m.ID != nil {
		c.last++
		id := fmt.Sprint(c.last) // the same for both sides, as a conductor may have it
		c.pending[id] = pendingRequest{from, m.ID}
		m.ID = json.RawMessage(id)
	}
	line, _ := json.Marshal(m)
	c.sides[to].Write(append(line, '\n'))
}

// In a proxy chain oinod is what it is before an agent.
func TestWrapInAProxyChain(t *testing.T) {
	t.Parallel()
	for _, underscore := range []string{"-", "_"} {
		t.Run("methods "+underscore, func(t *testing.T) {
			t.Parallel()
			bin, err := binary()
			require.NoError(t, err)
			self, err := os.Executable()
			require.NoError(t, err)
			b := newBox(t)
			b.write("a.txt", "one\n")
			store, record := t.TempDir(), filepath.Join(b.out, "read")
			start := func() *process {
				p := b.startProgram("", append([]string{self, conductorArgument, underscore, record, bin, "store=" + store}, ownWays[0].options...))
				p.answerSeen()
				hello := p.initialize(nil)
				require.Contains(t, field[[]any](t, hello, "agentCapabilities", "_meta", "oino", "methods"), "_oino/rewind")
				return p
			}
			p := start()
			s := p.newSession(b.work)
			p.turn(s, "say ONE")
			p.turn(s, "say TWO", "named c edit a.txt", "write a.txt two", "done c")
			p.rewindTo(s, 1, map[string]any{"conversation": "rewind"})
			require.Equal(t, "one\n", b.read("a.txt"))
			from := p.heardSoFar()
			p.turn(s, "told")
			require.Contains(t, p.said(from), "ONE")
			require.NotContains(t, p.said(from), "TWO")
			require.NotContains(t, p.said(from), recapped)

			// The agent asks the client, and a cancel gets where it belongs.
			from = p.heardSoFar()
			id, err := p.ask("session/prompt", promptParams(s, "ask b.txt"))
			require.NoError(t, err)
			m, _ := p.next("session/request_permission", from)
			p.reply(m.ID, `{"outcome":{"outcome":"selected","optionId":"yes"}}`)
			_, err = p.wait(id)
			require.NoError(t, err)
			require.FileExists(t, b.path("b.txt"))
			id, err = p.ask("session/prompt", promptParams(s, "say begun\nhang"))
			require.NoError(t, err)
			p.untilHeard("begun")
			require.NoError(t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s)))
			result, err := p.wait(id)
			require.NoError(t, err)
			require.Equal(t, "cancelled", field[string](t, result, "stopReason"))
			p.turn(s, "/rewind -1 --files") // by a command, which nobody else hears
			require.Zero(t, p.exit())

			said, err := os.ReadFile(record)
			require.NoError(t, err)
			prefix := strings.TrimPrefix(underscore, "-")
			require.Contains(t, string(said), `"method":"`+prefix+`proxy/successor","params":{"method":"initialize"`)
			require.NotContains(t, string(said), "1 {\"jsonrpc\":\"2.0\",\"method\":\"session/prompt\"", "what is for the agent is in an envelope")

			p = start()
			p.call("session/load", map[string]any{"sessionId": s, "cwd": b.work, "mcpServers": []any{}})
			require.Len(t, p.entries(s), 4)
			require.Zero(t, p.exit())
		})
	}
}
