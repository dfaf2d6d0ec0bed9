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
	if resp.Error != nil {
		logFailure(log, t.method.name, resp.Error)
		return
	}
	log.Debug().Str("method", t.method.name).Int("bytes", t.size).Int("answer", len(*resp.Result)).Msg("answered")
}

// logFailure logs what a client was refused. What has no name of its own is
// our trouble, and seen without asking for it.
func logFailure(log zerolog.Logger, method string, e *jsonrpc2.Error) {
	event := log.Debug()
	if e.Code == protocol.CodeInternalError {
		event = log.Error()
	}
	event.Str("method", method).Int64("code", e.Code).Str("error", e.Message).Msg("refused")
}
