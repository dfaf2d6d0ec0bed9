package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
)

// stream is the jsonrpc2.ObjectStream of one client: see the package comment
// for why jsonrpc2.Conn sees envelopes only. The options that a Conn must be
// made with are its part of the work.
type stream struct {
	lines *lineReader
	out   *lineWriter
	log   zerolog.Logger
	ended func() // called at the end of the input: returns when the work in hand is done
	quit  atomic.Bool

	// Of the message that ReadObject returned last: what received puts back.
	// Conn reads and handles one message after the other in one goroutine.
	params json.RawMessage
	result json.RawMessage
	size   int // of the line, in bytes

	// What sent saw, for the WriteObject that follows. Conn does both under
	// one lock of its own.
	request  *jsonrpc2.Request
	response *jsonrpc2.Response

	mu        sync.Mutex
	ids       map[uint64]json.RawMessage // of requests not answered: the id as the client spelled it
	lastID    uint64
	forgotten []string // requests of ours whose answer nobody waits for any more
	readErr   error    // what ended the input, if that was not its end
}

func newStream(in io.Reader, out io.Writer, maxBytes int, log zerolog.Logger) *stream {
	return &stream{
		lines: newLineReader(in, maxBytes),
		out:   &lineWriter{w: out, broken: func(error) {}},
		log:   log,
		ended: func() {},
		ids:   map[uint64]json.RawMessage{},
	}
}

// options is what a Conn on this stream needs.
func (s *stream) options() []jsonrpc2.ConnOpt {
	return []jsonrpc2.ConnOpt{jsonrpc2.OnRecv(s.received), jsonrpc2.OnSend(s.sent), jsonrpc2.SetLogger(connLog{s.log})}
}

// ReadObject gives Conn the envelope of the next message. Lines that are none
// are answered here.
func (s *stream) ReadObject(v any) error {
	for !s.quit.Load() {
		if id, ok := s.takeForgotten(); ok {
			s.params, s.result = nil, json.RawMessage("null")
			return json.Unmarshal(fmt.Appendf(nil, `{"id":%s,"result":true}`, mustEncode(id)), v)
		}
		ln, err := s.lines.next()
		if s.quit.Load() {
			break
		}
		if err != nil {
			s.finish(err)
			break
		}
		if envelope := s.take(ln); envelope != nil {
			return json.Unmarshal(envelope, v)
		}
	}
	return io.EOF
}

// take reads one line; nil is one that needs no further care.
func (s *stream) take(ln line) []byte {
	if ln.tooLong {
		s.refuse(endsID(ln.bytes), &refusal{protocol.CodeInvalidRequest,
			fmt.Sprintf("the message is longer than %d bytes (limits.maxMessageBytes)", s.lines.max), protocol.KindMessageTooLarge})
		return nil
	}
	if skipSpace(ln.bytes, 0) == len(ln.bytes) {
		return nil
	}
	logLine(s.log, "in", ln.bytes)
	m, bad := parse(ln.bytes)
	if bad != nil {
		s.refuse(m.id, bad)
		return nil
	}
	if m.isResponse() {
		return s.takeResponse(m)
	}
	s.params, s.result = m.params, nil
	s.size = len(ln.bytes)
	envelope := fmt.Appendf(nil, `{"method":%s`, mustEncode(m.method))
	if m.id != nil {
		envelope = fmt.Appendf(envelope, `,"id":%d`, s.keepID(m.id))
	}
	return append(envelope, '}')
}

// takeResponse passes the answer to a request of ours on. Other answers are
// nobody's: clients send errors with a null id about lines they did not like.
func (s *stream) takeResponse(m message) []byte {
	id := unquote(m.id)
	if id == "" {
		s.log.Debug().Bytes("id", m.id).Msg("an answer to no request of ours is ignored")
		return nil
	}
	s.params, s.result = nil, m.result
	if m.err == nil {
		if s.result == nil {
			s.result = json.RawMessage("null")
		}
		return fmt.Appendf(nil, `{"id":%s,"result":true}`, mustEncode(id))
	}
	var e struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(m.err, &e) != nil {
		e.Code, e.Message = protocol.CodeInternalError, "an error that is no JSON-RPC error"
	}
	return fmt.Appendf(nil, `{"id":%s,"error":%s}`, mustEncode(id), mustEncode(e))
}

// finish ends the input: the work in hand first, since Conn sends nothing
// once ReadObject has failed.
func (s *stream) finish(err error) {
	if !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.readErr = err
		s.mu.Unlock()
	}
	s.ended()
}

// received puts back what the envelope left out, before Conn hands the
// message on.
func (s *stream) received(req *jsonrpc2.Request, resp *jsonrpc2.Response) {
	switch {
	case resp != nil:
		if resp.Error == nil {
			resp.Result = new(s.result)
		}
	case s.params != nil:
		req.Params = new(s.params)
	}
}

// paramsField carries the params of a message of ours through Conn, whose own
// way would escape them for web pages.
const paramsField = "oino"

func withParams(params json.RawMessage) jsonrpc2.CallOption {
	return jsonrpc2.ExtraField(paramsField, params)
}

// sent notes what Conn is about to write.
func (s *stream) sent(req *jsonrpc2.Request, resp *jsonrpc2.Response) {
	s.request, s.response = req, resp
}

// WriteObject writes the message that sent saw, not the encoding of it that
// Conn would make.
func (s *stream) WriteObject(any) error {
	b := []byte(`{"jsonrpc":"2.0"`)
	if resp := s.response; resp != nil {
		b = append(b, `,"id":`...)
		b = append(b, s.dropID(resp.ID.Num)...)
		if resp.Error != nil {
			b = append(b, `,"error":`...)
			b = append(b, mustEncode(resp.Error)...)
		} else {
			b = append(b, `,"result":`...)
			b = append(b, *resp.Result...)
		}
	} else {
		if !s.request.Notif {
			b = append(b, `,"id":`...)
			b = append(b, mustEncode(s.request.ID.Str)...)
		}
		b = append(b, `,"method":`...)
		b = append(b, mustEncode(s.request.Method)...)
		for _, f := range s.request.ExtraFields {
			if params, ok := f.Value.(json.RawMessage); ok && f.Name == paramsField {
				b = append(b, `,"params":`...)
				b = append(b, params...)
			}
		}
	}
	return s.write(append(b, "}\n"...))
}

// refuse answers a line that is no request.
func (s *stream) refuse(id json.RawMessage, why *refusal) {
	if id == nil {
		id = json.RawMessage("null")
	}
	e := &jsonrpc2.Error{Code: why.code, Message: why.msg}
	if why.kind != "" {
		e.Data = new(mustEncode(protocol.ErrorData{Kind: why.kind}))
	}
	s.log.Debug().Int64("code", why.code).Msg(why.msg)
	_ = s.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`+"\n", id, mustEncode(e))) // the writer keeps its error
}

func (s *stream) write(line []byte) error {
	logLine(s.log, "out", bytes.TrimSuffix(line, []byte("\n")))
	return s.out.write(line)
}

// Close is called by Conn. The streams below are whose that gave them; only
// nothing goes out any more.
func (s *stream) Close() error {
	s.stop()
	s.out.close()
	return nil
}

// stop makes ReadObject end with the line it waits for.
func (s *stream) stop() { s.quit.Store(true) }

// keepID keeps the id of a request until it is answered, and gives the number
// that Conn calls it by: ids of two requests may be the same.
func (s *stream) keepID(raw json.RawMessage) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	s.ids[s.lastID] = bytes.Clone(raw) // the line may be large, and is let go of earlier
	return s.lastID
}

// rawID is the id of a request that is not answered.
func (s *stream) rawID(n uint64) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[n]
}

func (s *stream) dropID(n uint64) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := s.ids[n]
	delete(s.ids, n)
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// forget makes Conn let go of a request of ours that nobody waits for any
// more: it keeps one until it sees an answer, so it will be shown one.
func (s *stream) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, id)
}

func (s *stream) takeForgotten() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.forgotten) == 0 {
		return "", false
	}
	id := s.forgotten[0]
	s.forgotten = s.forgotten[1:]
	return id, true
}

// err is what ended the input or the output before its time.
func (s *stream) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readErr
}

// mustEncode is for values that can always be encoded: strings, and structs of them.
func mustEncode(v any) json.RawMessage {
	b, err := protocol.Encode(v)
	if err != nil {
		panic(err)
	}
	return b
}
