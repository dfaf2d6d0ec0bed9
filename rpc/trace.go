package rpc

import (
	"strings"

	"github.com/rs/zerolog"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
)

// What is logged of messages: below trace only what they are (method, id,
// size, time, code), never what they hold. Conversations and files are the
// user's.

// logLine logs a whole line, at trace alone.
func logLine(log zerolog.Logger, direction string, line []byte) {
	if e := log.Trace(); e.Enabled() {
		e.Str("dir", direction).Bytes("line", line).Msg("message")
	}
}

// connLog takes what jsonrpc2.Conn has to say, which is of interest only when
// something is being looked for.
type connLog struct{ log zerolog.Logger }

// Printf is jsonrpc2's Logger.
func (l connLog) Printf(format string, args ...any) {
	l.log.Debug().Msgf(strings.TrimSuffix(format, "\n"), args...)
}

// logAnswer logs how a request ended.
func logAnswer(log zerolog.Logger, t *task, resp *jsonrpc2.Response) {
	e := log.Debug()
	if resp.Error != nil && resp.Error.Code == protocol.CodeInternalError {
		e = log.Error()
	}
	if !e.Enabled() {
		return
	}
	e = e.Str("method", t.method.name).Int("bytes", t.size)
	if resp.Error != nil {
		e = e.Int64("code", resp.Error.Code).Str("error", resp.Error.Message)
	} else {
		e = e.Int("answer", len(*resp.Result))
	}
	e.Msg("answered")
}
