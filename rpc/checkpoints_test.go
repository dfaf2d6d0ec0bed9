package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// The whole round over the wire: record, write, edit, end, list, compare, go back.
func TestCheckpointsOverTheWire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		d.put("a", "0\n")
		d.call("session/prompt", `{"sessionId":"id1","prompt":[{"type":"text","text":"go"}]}`)
		d.do("_oino/record", `{"sessionId":"id1","paths":["$W/a"]}`, `{"entryId":"id2","recorded":["$W/a"],"known":[],"uncovered":[]}`)
		d.put("a", "1\n")
		d.do("_oino/write", `{"sessionId":"id1","path":"$W/b","data":"AP8="}`, `{"entryId":"id2","existed":false,"bytes":2}`)
		d.do("_oino/edit", `{"sessionId":"id1","path":"$W/a","edits":[{"oldText":"1","newText":"2"}]}`, `{"entryId":"id2","replacements":1}`)
		end := d.call("_oino/turn_end", `{"sessionId":"id1"}`)[0]
		require.Contains(t, end, `{"path":"$W/a","change":"modified"}`)
		require.Contains(t, end, `{"path":"$W/b","change":"created"}`)
		d.do("_oino/checkpoints", `{"sessionId":"id1"}`, `{"checkpoints":[{"entryId":"id2","createdAt":946684800000,`+
			`"files":[{"path":"$W/a","existed":true},{"path":"$W/b","existed":false}],"text":"go"}]}`)
		diff := d.call("_oino/diff", `{"sessionId":"id1","entryId":"id2","paths":["$W/a"],"context":0}`)[0]
		require.Contains(t, diff, `"path":"$W/a","change":"modified","additions":1,"deletions":1,"binary":false,"patch":"`)
		dry := d.call("_oino/rewind", `{"sessionId":"id1","entryId":"id2","dryRun":true}`)[0]
		require.Contains(t, dry, `{"restored":["$W/a"],"deleted":["$W/b"],"turns":1,"cancelled":false,"files":[`)
		require.Equal(t, "2\n", d.get("a"))
		d.do("_oino/rewind", `{"sessionId":"id1","entryId":"id2"}`, `{"restored":["$W/a"],"deleted":["$W/b"],"turns":1,"cancelled":false}`)
		require.Equal(t, "0\n", d.get("a"))
		redo := d.call("_oino/redo", `{"sessionId":"id1"}`)[0]
		require.Contains(t, redo, `"remaining":0`)
		require.Equal(t, "2\n", d.get("a"))
		require.Contains(t, d.call("_oino/stats", `{}`)[0], `"limits":{"maxCheckpoints":100,"maxSnapshotBytes":16777216,"maxMessageBytes":67108864},"version":"1.2.3"}`)
		require.NoError(t, d.eof())
	})
}

// Records that come together are one batch: each is answered in its place,
// and a wrong one fails alone.
func TestAWrongRecordFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.begin()
		d.ask("_oino/record", `{"sessionId":"id1","paths":["$W/a"]}`) // no turn yet
		d.ask("session/prompt", `{"sessionId":"id1","prompt":[]}`)
		for _, params := range []string{`"paths":["$W/a"]`, `"paths":"$W/a"`, `"paths":["$W/a","/etc/passwd"]`, `"paths":["$W/b"]`, `"paths":[]`} {
			d.ask("_oino/record", `{"sessionId":"id1",`+params+`}`)
		}
		require.Contains(t, d.until(2)[0], `"kind":"no_turn"`)
		require.Contains(t, d.until(3)[0], `"stopReason":"end_turn"`)
		require.Contains(t, d.until(4)[0], `"recorded":["$W/a"]`)
		require.Contains(t, d.until(5)[0], `"message":"paths must be an array, not a string"`)
		require.Contains(t, d.until(6)[0], `"kind":"outside_roots"`)
		require.Contains(t, d.until(7)[0], `"recorded":["$W/b"]`)
		require.Contains(t, d.until(8)[0], `"recorded":[],"known":[],"uncovered":[]`)
		require.Contains(t, d.call("_oino/record", `{"sessionId":"none","paths":["$W/a"]}`)[0], `"kind":"session_not_found"`)
		require.NoError(t, d.eof())
	})
}

const hooked = `{"protocolVersion":1,"clientCapabilities":{"_meta":{"oino":{"sessionBeforeFork":true}}}}`

// The client is asked before a fork, may look around meanwhile, and hears of
// a fork that was made. Whatever it answers but "go on" is an objection.
func TestTheClientIsAskedBeforeAFork(t *testing.T) {
	for name, c := range map[string]struct {
		answer string // of the client; "" none at all
		reason string // "" lets it go on
	}{
		"goes on":        {`"result":{}`, ``},
		"says nothing":   {`"result":null`, ``},
		"cancels":        {`"result":{"cancel":true,"reason":"user said no"}`, `user said no`},
		"misspells it":   {`"result":{"CANCEL":true}`, ``},
		"fails":          {`"error":{"code":1,"message":"dirty tree"}`, `the client answered with an error: dirty tree`},
		"is not clear":   {`"result":{"cancel":"maybe"}`, `cancel`},
		"never answers":  {``, `did not answer within 10m0s`},
		"does not know":  {`"error":{"code":-32601,"message":"Method not found"}`, `Method not found`},
		"answers a list": {`"result":[]`, `the client was asked`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := atDesk(t)
				d.call("initialize", hooked)
				d.begin()
				d.put("f", "0\n")
				d.turn("one", "f", "1\n")
				d.ask("_oino/rewind", `{"sessionId":"id1","entryId":"id2","fork":true}`)
				n := d.sent
				asked := d.says()
				require.Contains(t, asked, `{"id":"oino-1","method":"_oino/session_before_fork","params":{"type":"session_before_fork","sessionId":"id1","entryId":"id2",`+
					`"position":"before","conversation":"fork","cwd":"$W","text":"one","files":[{"path":"$W/f","change":"modified"}]}}`)
				require.Contains(t, d.call("_oino/checkpoints", `{"sessionId":"id1"}`)[0], `"entryId":"id2"`)
				if c.answer == "" {
					<-time.After(hookLimit)
				} else {
					d.send(`{"jsonrpc":"2.0","id":"oino-1",` + c.answer + `}`)
				}
				said := d.until(n)
				result := said[len(said)-1]
				if c.reason != "" {
					require.True(t, strings.HasPrefix(result, `{"result":{"restored":[],"deleted":[],"cancelled":true,"reason":"`), result)
					require.Contains(t, result, c.reason)
					require.Equal(t, "1\n", d.get("f"))
				} else {
					require.Contains(t, result, `"restored":["$W/f"],"deleted":[],"turns":1,"text":"one","sessionId":"`)
					require.Contains(t, said[0], `{"method":"_oino/session_fork","params":{"type":"session_fork","sessionId":"id1","entryId":"id2"`)
					require.Equal(t, "0\n", d.get("f"))
				}
				require.NoError(t, d.eof())
			})
		})
	}
}

// ACP's fork has no answer for an objection: it is an error. A client that
// goes while it is asked has objected.
func TestSessionForkIsRefusedByAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := atDesk(t)
		d.call("initialize", hooked)
		d.begin()
		d.turn("one", "f", "1\n")
		const fork = `{"sessionId":"id1","cwd":"$W","mcpServers":[],"_meta":{"oino":{"entryId":"id2"}}}`
		d.ask("session/fork", fork)
		n := d.sent
		require.Contains(t, d.says(), `"files":[]`)
		d.send(`{"jsonrpc":"2.0","id":"oino-1","result":{"cancel":true,"reason":"not now"}}`)
		require.Equal(t, []string{`{"error":{"code":-32010,"message":"the fork was cancelled: not now","data":{"kind":"fork_cancelled","reason":"not now"}}}`}, d.until(n))

		d.ask("session/fork", fork)
		n = d.sent
		d.says()
		d.send(`{"jsonrpc":"2.0","id":"oino-2","result":{}}`)
		said := d.until(n)
		require.Contains(t, said[len(said)-1], `"_meta":{"oino":{"text":"one"`)
		require.Contains(t, d.says(), "available_commands_update") // of the new session, once it is known

		d.ask("_oino/fork", `{"sessionId":"id1"}`)
		require.Contains(t, d.says(), `"entryId":null,"position":"at"`)
		d.in.Close()
		said = d.until(d.sent)
		require.Equal(t, `{"result":{"cancelled":true,"reason":"the client was asked: the client is gone"}}`, said[len(said)-1])
		<-d.ended
		require.NoError(t, d.err)
	})
}

func TestEveryErrorHasItsCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int64
		data string
	}{
		{&jsonrpc2.Error{Code: -1, Message: "as it is"}, -1, ``},
		{fmt.Errorf("wrapped: %w", &jsonrpc2.Error{Code: -1}), -1, ``},
		{context.Canceled, -32800, ``},
		{fmt.Errorf("reading: %w", context.Canceled), -32800, ``},
		{errRequestCancelled, -32800, ``},
		{&protocol.ParamsError{Msg: "x is missing"}, -32602, ``},
		{&session.Error{Kind: session.BadParams, Msg: "no"}, -32602, ``},
		{&session.Error{Kind: session.NoTurn, Msg: "no"}, -32602, `{"kind":"no_turn"}`},
		{&session.Error{Kind: session.EntryNotFound, Msg: "no"}, -32002, `{"kind":"entry_not_found"}`},
		{&session.Error{Kind: session.Locked, Msg: "no", Data: map[string]any{"pid": 7}}, -32010, `{"kind":"session_locked","pid":7}`},
		{&session.Error{Kind: session.Conflict, Msg: "no"}, -32011, `{"kind":"conflict"}`},
		{&session.Error{Kind: session.LogDamaged, Msg: "no"}, -32012, `{"kind":"log_damaged"}`},
		{&session.Error{Kind: "news", Msg: "no"}, -32603, `{"kind":"news"}`},
		{fmt.Errorf("a: %w", &checkpoints.PathError{Path: "/etc", Kind: "outside_roots", Msg: "no"}), -32602, `{"kind":"outside_roots","path":"/etc"}`},
		{&blobs.Error{Err: blobs.ErrMissing}, -32012, `{"kind":"blob_missing"}`},
		{&blobs.Error{Err: blobs.ErrDamaged}, -32012, `{"kind":"blob_damaged"}`},
		{&blobs.Error{Err: errors.New("io")}, -32012, `{"kind":"storage_failed"}`},
		{fmt.Errorf("writing: %w", syscall.ENOSPC), -32012, `{"kind":"storage_full"}`},
		{errors.New("anything else"), -32603, ``},
	} {
		e := wireError(c.err)
		require.Equal(t, c.code, e.Code, c.err)
		if c.data == "" {
			require.Nil(t, e.Data, c.err)
			continue
		}
		require.JSONEq(t, c.data, string(*e.Data))
		require.Equal(t, c.err.Error(), e.Message)
	}
}
