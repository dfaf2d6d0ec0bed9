package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/session"
)

// nopCloser is an agent's stdin that remembers.
type nopCloser struct{ bytes.Buffer }

func (*nopCloser) Close() error { return nil }

// between is a proxy without processes: lines are given to it directly.
type between struct {
	*proxy
	client, agent *bytes.Buffer // what either was told
	out           *os.File      // what the agent says, for readAgent
}

func newBetween(t testing.TB) *between {
	t.Helper()
	registry, err := session.OpenRegistry(session.Options{Dir: t.TempDir(), Limits: session.DefaultLimits, App: "test"})
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	client, agentIn := new(bytes.Buffer), new(nopCloser)
	p := newProxy(context.Background(), WrapConfig{
		Config: Config{
			In: strings.NewReader(""), Out: client, Registry: registry, Forker: fork.New(registry),
			Log: zerolog.Nop(), Limits: session.DefaultLimits, Tracking: []string{"files"}, Now: time.Now,
		},
		Agent: AgentCommand{Args: []string{"agent"}}, Conversation: true,
	}, &agent{in: agentIn, out: r})
	p.clientOut.broken = func(error) {}
	t.Cleanup(func() {
		p.settle()
		p.tasks.end()
		require.NoError(t, registry.Shutdown(context.Background()))
		require.NoError(t, r.Close())
		_ = w.Close() // unless the agent has ended
	})
	return &between{p, client, &agentIn.Buffer, w}
}

// settle waits until nothing is under way.
func (p *proxy) settle() {
	p.tasks.work.Wait()
	p.held.work.Wait()
	p.agentOut.flush()
	p.clientOut.flush()
}

// told is what has come out since it was last asked.
func told(b *bytes.Buffer) string {
	s := b.String()
	b.Reset()
	return s
}

// anyID gives ids as they are seen, and as they should not be.
func anyID() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{`0`, `1`, `-1`, `-4`, `1.5`, `1e3`, `12`, `"12"`, `""`, `"0198-uuid"`, `null`, `"\u00e9\""`, `9007199254740993`, `true`, `{}`, `[1]`})
}

// anyLine gives lines that oinod has no business with, and things that are
// hardly lines at all.
func anyLine() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		space := rapid.SampledFrom([]string{"", " ", "\t", "  "}).Draw(t, "space")
		var members []string
		add := func(name, value string) {
			members = append(members, fmt.Sprintf(`%q%s:%s%s`, name, space, space, value))
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return rapid.StringMatching(`[ -~\t]{0,60}`).Draw(t, "garbage")
		case 1:
			return string(rapid.SliceOfN(rapid.ByteRange(0x0b, 0xff), 0, 40).Draw(t, "bytes"))
		case 2: // an answer to nobody
			add("id", anyID().Draw(t, "id"))
			add(rapid.SampledFrom([]string{"result", "error"}).Draw(t, "which"), anyValue().Draw(t, "value"))
		default:
			add("jsonrpc", `"2.0"`)
			add("method", rapid.SampledFrom([]string{
				`"authenticate"`, `"session/set_mode"`, `"session/update"`, `"session/cancel"`, `"session/prompt"`, `"session/load"`, `"x/y"`, `"_other/z"`,
				`"terminal/create"`, `"fs/write_text_file"`, `"session/request_permission"`, `"logout"`, `""`, `7`, `"nes\u002fstart"`, `"$/cancel_request"`,
			}).Draw(t, "method"))
			if rapid.Bool().Draw(t, "is a request") {
				add("id", anyID().Draw(t, "id"))
			}
			add("params", rapid.OneOf(anyValue(), rapid.SampledFrom([]string{
				`{"sessionId":"nobody's","update":{"sessionUpdate":"_x/new_variant","n":1}}`,
				`{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud83d\ude00"}},"sessionId":"nobody's"}`,
				`{"sessionId":"nobody's","prompt":[{"type":"text","text":"go"}]}`, `{"sessionId":5}`, `{"requestId":3}`,
				`{"sessionId":"nobody's","toolCall":{"toolCallId":"c","locations":[{"path":"/etc/passwd"}]}}`,
			})).Draw(t, "params"))
			if rapid.Bool().Draw(t, "more") {
				add("_meta", `{"trace":[1,{"a":"}"}]}`)
				add("unknown", anyValue().Draw(t, "unknown"))
			}
		}
		return space + "{" + space + strings.Join(rapid.Permutation(members).Draw(t, "members"), space+","+space) + "}" + space
	})
}

func anyValue() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{`null`, `0`, `-0.50`, `"<&>"`, `"\u003c\/"`, `[]`, `{}`, `{"b":1, "a" :2,"b":3}`, `[1, [2,{"x":"]"}]]`, `"é"`, `{"sessionId":"q"}`, `{"truncated":`})
}

// Whatever either side says that is none of our business comes out on the
// other side byte for byte, and in order.
func TestWhatIsNobodysBusinessPassesUnchanged(t *testing.T) {
	b := newBetween(t)
	rapid.Check(t, func(t *rapid.T) {
		var toAgent, toClient strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "lines") {
			line := anyLine().Draw(t, "line")
			if rapid.Bool().Draw(t, "by the client") {
				b.clientSays([]byte(line))
				b.tasks.work.Wait() // what may have been held
				toAgent.WriteString(line + "\n")
			} else {
				b.agentSays([]byte(line))
				toClient.WriteString(line + "\n")
			}
		}
		b.settle()
		require.Equal(t, toAgent.String(), told(b.agent))
		require.Equal(t, toClient.String(), told(b.client))
		b.update(func(st *proxyState) { st.pending = map[string][]*request{} }) // nobody answers
	})
}

// FuzzPass is the same for any bytes.
func FuzzPass(f *testing.F) {
	seeds := []string{
		`{"jsonrpc":"2.0","id":0,"method":"x","params":{}}`, `{"id":1.5,"result":{}}`, `{"method":"session/update","params":{"sessionId":"s","update":{}}}`,
		`[]`, ``, `{`, `{"method":"session/prompt","id":1,"params":{"sessionId":"s","prompt":[`, `{"id":null,"error":{"code":-32700}}`, `{"a":"\"","method":3}`,
		`{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","locations":{}}`, `{"method":"$/cancel_request","params":{"requestId":"x"}}`,
	}
	for _, s := range seeds {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, line []byte, byClient bool) {
		e := openLine(line)
		if bytes.IndexByte(line, '\n') >= 0 || strings.HasPrefix(e.name(), "_oino/") {
			return
		}
		b := newBetween(t)
		if byClient {
			b.clientSays(line)
			b.settle()
			require.Equal(t, string(line)+"\n", told(b.agent))
			require.Empty(t, told(b.client))
			return
		}
		b.agentSays(line)
		b.settle()
		require.Equal(t, string(line)+"\n", told(b.client))
		require.Empty(t, told(b.agent))
	})
}

// Bytes are exchanged where they stand, and nowhere else.
func TestSplice(t *testing.T) {
	t.Parallel()
	line := []byte(`{"params" : {"a":{"sessionId":"x"}, "sessionId" : "s","sessionId":"t" }, "id":1}`)
	e := openLine(line)
	require.Equal(t, `"t"`, string(e.sessionID().of(line)), "the last of two counts, as for any decoder")
	require.Equal(t, `{"params" : {"a":{"sessionId":"x"}, "sessionId" : "s","sessionId":"agent" }, "id":1}`,
		string(exchanged(line, e.sessionID(), []byte(`"agent"`))))
	for _, c := range []struct{ in, want string }{
		{`{}`, `{"_meta":1}`}, {`{ }`, `{ "_meta":1}`}, {`{"a":2}`, `{"a":2,"_meta":1}`}, {`{"_meta":{"b":3},"a":2}`, `{"_meta":1,"a":2}`},
	} {
		require.Equal(t, c.want, string(withMember([]byte(c.in), span{0, len(c.in)}, "_meta", []byte("1"))))
	}
	for _, c := range []struct{ in, first, last string }{
		{`[]`, `[9]`, `[9]`}, {`[ ]`, `[9 ]`, `[9 ]`}, {`[1, 2]`, `[9,1, 2]`, `[1, 2,9]`},
	} {
		require.Equal(t, c.first, string(withElement([]byte(c.in), span{0, len(c.in)}, []byte("9"), true)))
		require.Equal(t, c.last, string(withElement([]byte(c.in), span{0, len(c.in)}, []byte("9"), false)))
	}
}

// What agents say of the paths that they touch, as five of them say it.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, call string
		want       []string
	}{
		{"locations", `{"locations":[{"path":"/w/a","line":3},{"path":"b"}]}`, []string{"/w/a", "/w/b"}},
		{"a diff", `{"content":[{"type":"diff","path":"a.txt","oldText":"x","newText":"y"},{"type":"content","content":{"type":"text","text":"/w/no"}}]}`, []string{"/w/a.txt"}},
		{"a diff of version 2", `{"content":[{"type":"diff","changes":[{"operation":"move","path":"/w/n","oldPath":"/w/o"}]}]}`, []string{"/w/n", "/w/o"}},
		{"arguments", `{"rawInput":{"filePath":"/w/a","content":"/w/no","edits":[{"file_path":"c"}]}}`, []string{"/w/a", "/w/c"}},
		{"a patch by path", `{"rawInput":{"changes":{"/w/a":{"type":"delete"},"b":{"type":"add"}}}}`, []string{"/w/a", "/w/b"}},
		{"where a command runs", `{"locations":[{"path":"/w"}],"rawInput":{"command":"rm x","cwd":"/w"}}`, nil},
		{"each once", `{"locations":[{"path":"/w/a"},{"path":"/w/./a"}],"rawInput":{"path":"a"}}`, []string{"/w/a"}},
		{"nonsense", `{"locations":"x","content":{"type":"diff"},"rawInput":[1,"a"]}`, nil},
	} {
		var call toolHints
		require.NoError(t, json.Unmarshal([]byte(c.call), &call))
		require.Equal(t, c.want, hintsOf(call, "/w"), c.name)
	}
}

// A day's traffic leaves nothing behind. (What it leaves running, goleak sees.)
func TestADayOfTraffic(t *testing.T) {
	b := newBetween(t)
	cwd := t.TempDir()
	b.clientSays(fmt.Appendf(nil, `{"id":0,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`, cwd))
	b.agentSays([]byte(`{"id":0,"result":{"sessionId":"s"}}`))
	b.settle()
	turns, updates := 20, 5000
	if testing.Short() {
		turns = 2
	}
	chunk := []byte(`{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"so it is "}}}}`)
	for n := range turns {
		b.clientSays(fmt.Appendf(nil, `{"id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go on"}]}}`, n+1))
		b.tasks.work.Wait()
		for i := range updates {
			b.agentSays(chunk)
			if i%50 == 0 {
				b.agentSays(fmt.Appendf(nil, `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c%d","status":"completed"}}}`, i))
				b.clientSays(fmt.Appendf(nil, `{"id":"x%d","method":"session/set_mode","params":{"sessionId":"s","modeId":"m%d"}}`, i, i))
				b.agentSays(fmt.Appendf(nil, `{"id":"x%d","result":{}}`, i))
			}
		}
		b.agentSays(fmt.Appendf(nil, `{"id":%d,"result":{"stopReason":"end_turn"}}`, n+1))
		b.settle()
		told(b.agent)
		require.Equal(t, updates, strings.Count(told(b.client), "agent_message_chunk"))
		w := b.wrapped("s")
		require.Empty(t, w.running)
		require.Zero(t, w.heard.size)
		require.Empty(t, w.heard.calls)
		require.Len(t, w.settings, 1)
		b.update(func(st *proxyState) { require.Empty(t, st.pending) })
		require.Zero(t, b.held.bytes)
	}
	kept, err := b.session(t.Context(), "s")
	require.NoError(t, err)
	branch, err := kept.Branch("")
	require.NoError(t, err)
	calls := updates / 50
	require.Equal(t, turns*(1+calls+calls+1), len(branch), "the message, the calls, and what was said before, between and after")
}

func TestAgentName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"gemini --acp", "gemini"},
		{"/usr/bin/opencode acp", "opencode"},
		{"node --trace-warnings /x/dist/agent.js --flag", "agent"},
		{"npx -y @zed-industries/codex-acp@0.16.0", "codex-acp"},
		{"env A=b -i agent.sh", "agent"},
		{"python3", "python3"},
	} {
		require.Equal(t, c.want, agentName(strings.Fields(c.args)), c.args)
	}
}

// A piece that is no content block is passed on and costs nothing of the others.
func TestOddPiecesAreNotKept(t *testing.T) {
	b := newBetween(t)
	b.clientSays(fmt.Appendf(nil, `{"id":0,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`, t.TempDir()))
	b.agentSays([]byte(`{"id":0,"result":{"sessionId":"s"}}`))
	b.clientSays([]byte(`{"id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go on"}]}}`))
	b.settle()
	told(b.client)
	var lines strings.Builder
	for _, content := range []string{
		`{"type":"text","text":"one "}`, `{}`, `{"text":"a"}`, `{"type":""}`, `{"type":7}`, `{"type":"text","text":5}`, `{"type":"text","text":null}`,
		`{"type":"text","text":"a","text":5}`, `{"type":"text"}`, `{"type":"image","text":[]}`, `[]`, `null`, `5`, `"text"`, `{"type":"text","text":"two"}`,
	} {
		line := `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":` + content + `}}}`
		b.agentSays([]byte(line))
		lines.WriteString(line + "\n")
	}
	b.agentSays([]byte(`{"id":1,"result":{"stopReason":"end_turn"}}`))
	b.settle()
	require.Equal(t, lines.String()+`{"id":1,"result":{"stopReason":"end_turn"}}`+"\n", told(b.client))
	kept, err := b.session(t.Context(), "s")
	require.NoError(t, err)
	page, err := kept.Entries(t.Context(), session.EntriesQuery{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2)
	got, err := kept.EntryText(page.Entries[1].ID)
	require.NoError(t, err)
	require.Equal(t, "one two", strings.ReplaceAll(got, "\n", ""))
}

// Pieces of a message that look alike are passed on and kept like any others,
// and what only looks alike is not taken for one, however the lines come in.
func TestPiecesThatLookAlike(t *testing.T) {
	var lines, text strings.Builder
	for i, piece := range []string{
		`one `, `two `, `three\n`, `fo\"ur `, ``, `"text":"`, `five","text":"six `, `é`, `\ud83d\ude00`, `\x`, `\u12`, "\x01", "\xff",
		`eight","n":"`, `"}},"z":{"a":{"b":"`, `last`, strings.Repeat("long ", 20_000),
	} {
		for range 1 + 300*(i%2) { // more than is read at once, too
			line := `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + piece + `"}}}}`
			lines.WriteString(line + "\n")
			var decoded struct {
				Params struct {
					Update struct {
						Content struct{ Text string }
					}
				}
			}
			if json.Unmarshal([]byte(line), &decoded) == nil {
				text.WriteString(decoded.Params.Update.Content.Text)
			}
		}
		lines.WriteString(`{"method":"session/update","params":{"sessionId":"nobody's","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + piece + `"}}}}` + "\n")
	}
	for _, size := range []int{1, 7, 1000, lines.Len()} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := newBetween(t)
			b.clientSays(fmt.Appendf(nil, `{"id":0,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`, t.TempDir()))
			b.agentSays([]byte(`{"id":0,"result":{"sessionId":"s"}}`))
			b.clientSays([]byte(`{"id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go on"}]}}`))
			b.settle()
			told(b.client)
			go func() {
				defer b.out.Close()
				said := lines.String() + `{"id":1,"result":{"stopReason":"end_turn"}}` + "\n"
				for len(said) > 0 {
					n := min(size, len(said))
					if size == 1 && len(said) > 4000 {
						n = 1000 // byte by byte at the end
					}
					_, _ = b.out.WriteString(said[:n])
					said = said[n:]
				}
			}()
			b.readAgent()
			b.settle()
			require.True(t, lines.String()+`{"id":1,"result":{"stopReason":"end_turn"}}`+"\n" == told(b.client), "every byte, in order")
			kept, err := b.session(t.Context(), "s")
			require.NoError(t, err)
			page, err := kept.Entries(t.Context(), session.EntriesQuery{})
			require.NoError(t, err)
			require.Len(t, page.Entries, 2)
			got, err := kept.EntryText(page.Entries[1].ID)
			require.NoError(t, err)
			require.Equal(t, text.Len(), len(got))
			require.True(t, text.String() == got)
		})
	}
}
