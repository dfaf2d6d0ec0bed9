package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// slowContext holds up whoever asks it whether it is done.
type slowContext struct {
	context.Context
	asked chan struct{} // gets one for each
	open  chan struct{}
}

func (c slowContext) Done() <-chan struct{} {
	select {
	case c.asked <- struct{}{}:
	default:
	}
	<-c.open
	return c.Context.Done()
}

// Of those who write down how a session is set none writes over what a later
// one has written.
func TestTheNewestSettingIsKept(t *testing.T) {
	a := newAsked(t)
	kept, err := a.session(t.Context(), "s")
	require.NoError(t, err)
	w := a.wrapped("s")
	set := func(params string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.settings = []session.Setting{{Method: protocol.SetMode, Params: []byte(params)}}
	}
	saved := make(chan struct{}, 2)
	save := func(ctx context.Context) {
		w.saveSettings(ctx)
		saved <- struct{}{}
	}
	slow := slowContext{t.Context(), make(chan struct{}, 1), make(chan struct{})}
	set("1")
	go save(slow)
	<-slow.asked
	set("2")
	go save(t.Context())
	select {
	case <-saved: // it did not wait
		saved <- struct{}{}
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.open)
	<-saved
	<-saved
	require.Equal(t, w.settings, kept.Settings())
}

// A setting is kept as the log has it, however it was written.
func TestASettingIsKeptCompact(t *testing.T) {
	a := newAsked(t)
	kept, err := a.session(t.Context(), "s")
	require.NoError(t, err)
	a.clientSays([]byte(`{"id":20,"method":"session/set_mode","params":{ "sessionId": "s", "modeId": "a <b>" }}`))
	a.settle()
	want := []session.Setting{{Method: protocol.SetMode, Params: []byte(`{"sessionId":"s","modeId":"a <b>"}`)}}
	require.Equal(t, want, a.wrapped("s").settings)
	require.Equal(t, want, kept.Settings())
}
