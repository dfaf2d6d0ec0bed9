package rpc

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// Of those who write down how a session is set none writes over what a later
// one has written.
func TestTheNewestSettingIsKept(t *testing.T) {
	a := newAsked(t)
	kept, err := a.session(t.Context(), "s")
	require.NoError(t, err)
	w := a.wrapped("s")
	for i := range 300 {
		var saves sync.WaitGroup
		for j := range 4 {
			w.mu.Lock()
			w.settings = []session.Setting{{Method: protocol.SetMode, Params: fmt.Appendf(nil, "%d", 4*i+j)}}
			w.mu.Unlock()
			saves.Go(func() { w.saveSettings(t.Context()) })
		}
		saves.Wait()
		require.Equal(t, w.settings, kept.Settings())
	}
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
