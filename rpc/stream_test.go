package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/session"
)

// converse serves input to its end with one method, "say", and returns what
// was written, write by write.
func converse(t testing.TB, input io.Reader, maxBytes int64) []string {
	t.Helper()
	var out writes
	config := Config{In: input, Out: &out, Log: zerolog.Nop(), Limits: session.Limits{MaxMessageBytes: maxBytes}}
	err := serve(t.Context(), config, []*method{{name: "say", run: say("<said>")}}, func(*client) {}, func() {})
	require.NoError(t, err)
	return out
}

// writes keeps every Write apart.
type writes []string

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, string(b))
	return len(b), nil
}

// An id is answered as it was spelled: clients compare bytes, and keep 12 and
// "12" apart.
func TestIDsAreAnsweredByteForByte(t *testing.T) {
	for _, id := range []string{
		`0`, `-0`, `-4`, `12`, `"12"`, `9007199254740993`, `18446744073709551615`, `-9223372036854775809`,
		`123456789012345678901234567890`, `""`, `"oino-1"`, `"a\u0062c"`, `"\"\\"`, `"<&>"`, `"ü"`, `"\ud800"`, `"` + strings.Repeat("x", 5000) + `"`,
	} {
		got := converse(t, strings.NewReader(`{"jsonrpc":"2.0","id":`+id+`,"method":"say"}`+"\n"), 1<<20)
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":` + id + `,"result":"<said>"}` + "\n"}, got)
	}
}

// Bad input is answered with what is wrong, and what follows is served.
func TestBadInputIsAnswered(t *testing.T) {
	for _, c := range []struct {
		line, id string
		code     int
	}{
		{`{nonsense`, `null`, -32700},
		{`{"id":1,"method":"say"`, `null`, -32700},
		{`{"id":1,"method":"say"} {}`, `null`, -32700},
		{"\xff\xfe", `null`, -32700},
		{`{"id":"` + "\xff" + `","method":"say"}`, `null`, -32700},
		{"\ufeff" + `{"id":1,"method":"say"}`, `null`, -32700},
		{`{"id":1,"method":"say","params":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, `null`, -32700},
		{`[]`, `null`, -32600},
		{`[{"jsonrpc":"2.0","id":1,"method":"say"}]`, `null`, -32600},
		{`"x"`, `null`, -32600},
		{`7`, `null`, -32600},
		{`null`, `null`, -32600},
		{`{}`, `null`, -32600},
		{`{"jsonrpc":"2.0","id":7}`, `7`, -32600},
		{`{"id":7,"method":5}`, `7`, -32600},
		{`{"id":7,"method":null}`, `7`, -32600},
		{`{"id":7,"method":""}`, `7`, -32600},
		{`{"jsonrpc":"1.0","id":"a","method":"say"}`, `"a"`, -32600},
		{`{"id":1.5,"method":"say"}`, `1.5`, -32600},
		{`{"id":1e3,"method":"say"}`, `1e3`, -32600},
		{`{"id":{"a": 1},"method":"say"}`, `{"a": 1}`, -32600},
		{`{"id":[1],"method":"say"}`, `[1]`, -32600},
		{`{"id":true,"method":"say"}`, `true`, -32600},
		{`{"id":null,"method":"say"}`, `null`, -32600},
		{`{"ID":7,"Method":"say"}`, `null`, -32600}, // names are as they are spelled
		{`{"id":1,"id":2,"method":"nope","method":"say","params":1,"params":2,"id":{}}`, `{}`, -32600}, // the last of a name counts
	} {
		got := converse(t, strings.NewReader(c.line+"\n"+`{"id":"next","method":"say"}`), 1<<20)
		require.Len(t, got, 2, c.line)
		var answer struct {
			ID    json.RawMessage
			Error struct {
				Code    int
				Message string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(got[0]), &answer), got[0])
		require.Equal(t, c.code, answer.Error.Code, c.line)
		require.NotEmpty(t, answer.Error.Message)
		require.Contains(t, got[0], `"id":`+c.id+`,`)
		require.Equal(t, `{"jsonrpc":"2.0","id":"next","result":"<said>"}`+"\n", got[1])
	}
}

// What a client may do to a line without harm.
func TestLinesAreToleratedAsTheyCome(t *testing.T) {
	const said = `{"jsonrpc":"2.0","id":1,"result":"<said>"}` + "\n"
	for _, c := range []struct {
		input string
		want  []string
	}{
		{"", nil},
		{"\n  \n\t\r\n", nil},
		{`{"id":1,"method":"say"}` + "\r\n\r\n", []string{said}},
		{` { "method" : "say" , "id" : 1 , "more" : {"a":"}"} } `, []string{said}},
		{`{"params":{"q":"\\\"}"},"id":1,"m\u0065thod":"say"}`, []string{said}},
		{`{"id":1,"method":"say","result":1}`, []string{said}}, // a field more is a field more
		{`{"id":null,"error":{"code":-32700}}`, nil},
		{`{"id":5,"result":{}}` + "\n" + `{"error":{}}` + "\n" + `{"id":"oino-7","result":{}}`, nil},
		{`{"method":"say"}`, nil},
		{`{"id":1,"method":"say"}` + "\n" + `{"id":1,"method":"say"}`, []string{said, said}},
	} {
		require.Equal(t, c.want, []string(converse(t, strings.NewReader(c.input), 1<<20)), c.input)
	}
}

// repeat is a reader of the same bytes, n in all.
type repeat struct {
	block []byte
	n     int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), r.n)], r.block)
	if n == 0 {
		return 0, io.EOF
	}
	r.n -= n
	return n, nil
}

// A line that is too long is skipped without being held, answered by its id
// if that is at its beginning or its end, and what follows is served.
func TestATooLongLineIsNotBuffered(t *testing.T) {
	const limit, long = 1 << 20, 64 << 20
	block := bytes.Repeat([]byte("x"), 1<<16)
	for _, c := range []struct{ head, tail, id string }{
		{`{"jsonrpc":"2.0","id":"7<","method":"say","params":{"x":"`, `"}}`, `"7<"`},
		{`{"method":"say","params":{"id":3,"x":"`, `"}}`, `null`},
		{`{"id":1.5,"method":"say","params":{"x":"`, `"}}`, `null`},
		{`[`, `"}}`, `null`},
		{`{"id"`, `"}}`, `null`},
		{`{"id":"`, `"}}`, `null`},
		{`{"method":"say","params":"`, `","id":3}`, `3`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := converse(t, io.MultiReader(strings.NewReader(c.head), &repeat{block, long}, strings.NewReader(c.tail+"\n"+`{"id":2,"method":"say"}`)), limit)
		runtime.ReadMemStats(&after)
		require.Equal(t, []string{
			`{"jsonrpc":"2.0","id":` + c.id + `,"error":{"code":-32600,"message":"the message is longer than 1048576 bytes (limits.maxMessageBytes)","data":{"kind":"message_too_large"}}}` + "\n",
			`{"jsonrpc":"2.0","id":2,"result":"<said>"}` + "\n",
		}, got)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*limit), "memory taken in all for a line of %d bytes", long)
	}
}

// Around the limit and the reader's own buffer, a line is whole or refused.
func TestLinesAroundTheLimit(t *testing.T) {
	for _, limit := range []int{100, headBytes - 1, headBytes, headBytes + 1, 3 * headBytes} {
		for _, n := range []int{limit - 1, limit, limit + 1, limit + headBytes} {
			line := `{"id":1,"method":"say","x":"` + strings.Repeat("x", n-30) + `"}`
			require.Len(t, line, n)
			got := converse(t, strings.NewReader(line+"\n"), int64(limit))
			require.Len(t, got, 1)
			require.Equal(t, n > limit, strings.Contains(got[0], "message_too_large"), "%d bytes of %d", n, limit)
		}
	}
}

// A reader that fails is not an end of the input.
func TestAReadErrorIsReported(t *testing.T) {
	config := Config{In: io.MultiReader(strings.NewReader("\n"), failing{}), Out: io.Discard, Log: zerolog.Nop(), Limits: session.DefaultLimits}
	err := serve(t.Context(), config, nil, func(*client) {}, func() {})
	require.ErrorContains(t, err, "reading from the client: the cable is cut")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, fmt.Errorf("the cable is cut") }

// A question that was given up is taken from Conn by an answer of our own:
// left to itself it would keep every one that the client never answers.
func TestAForgottenQuestionIsAnsweredByUs(t *testing.T) {
	s := newStream(strings.NewReader(""), io.Discard, 100, zerolog.Nop())
	s.forget("oino-1")
	var envelope json.RawMessage
	require.NoError(t, s.ReadObject(&envelope))
	require.Equal(t, `{"id":"oino-1","result":true}`, string(envelope))
	require.ErrorIs(t, s.ReadObject(&envelope), io.EOF)
}

// What a message holds is logged at trace alone: conversations and files are
// the user's.
func TestContentsAreLoggedAtTraceAlone(t *testing.T) {
	for level, logged := range map[zerolog.Level]bool{zerolog.TraceLevel: true, zerolog.DebugLevel: false} {
		var log bytes.Buffer
		input := `{"id":1,"method":"say","params":{"content":"secret"}}` + "\n" + `{"id":2,"method":"nope","params":["secret"]}` + "\n" +
			`{"id":"oino-1","result":"secret"}` + "\n" + `["secret"]` + "\n" + `{"secret"`
		config := Config{
			In: strings.NewReader(input), Out: io.Discard, Limits: session.DefaultLimits,
			Log: zerolog.New(zerolog.SyncWriter(&log)).Level(level),
		}
		require.NoError(t, serve(t.Context(), config, []*method{{name: "say", run: say("said")}}, func(*client) {}, func() {}))
		require.Contains(t, log.String(), `"method":"say"`)
		require.Equal(t, logged, strings.Contains(log.String(), "secret"), log.String())
	}
}

// checkConversation holds what must be true of any input: every line out is
// one JSON object, an answer, and there is at most one for each line in.
func checkConversation(t *testing.T, input []byte) {
	got := converse(t, bytes.NewReader(input), 4096)
	lines := 0
	for line := range bytes.Lines(input) {
		if len(bytes.Trim(line, " \t\r\n")) > 0 {
			lines++
		}
	}
	require.LessOrEqual(t, len(got), lines)
	for _, line := range got {
		require.Equal(t, 1, strings.Count(line, "\n"))
		var answer struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Result  json.RawMessage `json:"result"`
			Error   *struct{}       `json:"error"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &answer), line)
		require.Equal(t, "2.0", answer.Version)
		require.NotEmpty(t, answer.ID)
		require.True(t, (answer.Result == nil) != (answer.Error == nil), line)
	}
}

const seedFolder = "testdata/fuzz/FuzzStream"

// Fuzzing starts from real lines; without them it would say little, and say
// so to nobody.
func TestTheFuzzSeedsAreThere(t *testing.T) {
	seeds, err := filepath.Glob(filepath.Join(seedFolder, "*"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(seeds), 10, "seeds in %s", seedFolder)
	for _, seed := range seeds {
		b, err := os.ReadFile(seed)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(b, []byte("go test fuzz v1\n[]byte(")), seed)
	}
}

// FuzzStream: whatever comes in, each line is answered or ignored.
func FuzzStream(f *testing.F) {
	f.Fuzz(checkConversation)
}

// FuzzMembers: the scanner agrees with encoding/json on objects that are
// valid, and ends on all others.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":[1,2,{"d":"\"}"}]},"e":"\\","":null}`))
	f.Add([]byte(`{"a":1,"a":2 , "b" : [ ] }`))
	f.Add([]byte(`{"a`))
	f.Add([]byte(`{"a":"\`))
	f.Add([]byte("{\"\xb9\":\"\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[string]json.RawMessage{}
		for name, value := range members(b) {
			got[name] = value
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(b, &want) != nil || want == nil {
			return
		}
		object := bytes.TrimSpace(b)
		got = map[string]json.RawMessage{}
		for name, value := range members(object) {
			got[name] = value
		}
		require.Equal(t, want, got)
	})
}

// BenchmarkStream is one small request there and its answer back.
func BenchmarkStream(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":12345,"method":"say","params":{"sessionId":"0199a5a0-0000-7000-8000-000000000000","paths":["/home/u/project/src/main.go"]}}` + "\n")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	input := &lineSource{line: line, left: b.N}
	config := Config{In: input, Out: io.Discard, Log: zerolog.Nop(), Limits: session.DefaultLimits}
	b.ResetTimer()
	if err := serve(b.Context(), config, []*method{{name: "say", run: say("said")}}, func(*client) {}, func() {}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLargeMessage is one request of 16 MiB.
func BenchmarkLargeMessage(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"say","params":{"sessionId":"s","content":"` + strings.Repeat("line of text\\n", 16<<20/14) + `"}}` + "\n")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	config := Config{In: &lineSource{line: line, left: b.N}, Out: io.Discard, Log: zerolog.Nop(), Limits: session.DefaultLimits}
	if err := serve(b.Context(), config, []*method{{name: "say", run: say("said")}}, func(*client) {}, func() {}); err != nil {
		b.Fatal(err)
	}
}

// lineSource reads as the same line again and again.
type lineSource struct {
	line []byte
	at   int
	left int
}

func (s *lineSource) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && s.left > 0 {
		c := copy(p[n:], s.line[s.at:])
		n += c
		if s.at += c; s.at == len(s.line) {
			s.at = 0
			s.left--
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
