package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/fork"
)

// thinker is a handler that thinks until it is told what to say.
type thinker chan fork.Answer

func (th thinker) SessionBeforeFork(context.Context, fork.Event) (fork.Answer, error) {
	return <-th, nil
}
func (th thinker) SessionForked(context.Context, fork.Forked) {}

// While a handler thinks, whoever it is, what only reads is answered and sees
// the state before; what changes something waits.
func TestReadingPassesAForkThatWaitsForAHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		th := make(thinker)
		d := atDesk(t, th)
		d.begin()
		d.turn("one", "a", "1")
		for _, method := range []string{"_oino/fork", "_oino/rewind"} {
			entries := d.call("_oino/entries", `{"sessionId":"id1"}`)
			params := `{"sessionId":"id1"}`
			if method == "_oino/rewind" {
				params = `{"sessionId":"id1","entryId":"id2","conversation":"rewind"}`
			}
			d.ask(method, params)
			first := d.sent
			d.ask("_oino/title", `{"sessionId":"id1","title":"t"}`)
			titled := d.sent
			require.Equal(t, entries, d.call("_oino/entries", `{"sessionId":"id1"}`), method)
			d.quiet()
			th <- fork.Answer{Cancel: true, Reason: "no"}
			require.Contains(t, d.until(first)[0], `"cancelled":true,"reason":"no"`)
			require.Len(t, d.until(titled), 2)
			require.NotEmpty(t, d.call("_oino/entries", `{"sessionId":"id1"}`), "in order again")
		}
		require.NoError(t, d.eof())
	})
}
