package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// note sees a message of the client's go by that says how the session is to be.
func (w *wrapped) note(method string, e envelope) {
	var key string
	switch method {
	case protocol.SetMode, protocol.SetModel:
	case protocol.SetConfigOption:
		key = unquote(within(e.line, e.params, "configId").of(e.line))
	default:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	set := session.Setting{Method: method, Key: key, Params: compacted(e.params.of(e.line))}
	w.settings = slices.DeleteFunc(w.settings, func(s session.Setting) bool { return s.Method == method && s.Key == key })
	w.settings = append(w.settings, set)
	if w.saving {
		return
	}
	w.saving = true
	w.proxy.tasks.put("settings of "+w.id, w.saveSettings) // what follows need not wait for it
}

// compacted is JSON as a log has it, with bytes of its own; what is none stays
// as it is.
func compacted(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return bytes.Clone(raw)
	}
	return b.Bytes()
}

// saveSettings writes down how the session is set: now, and not as it was when
// another did so.
func (w *wrapped) saveSettings(ctx context.Context) {
	w.save.Lock()
	defer w.save.Unlock()
	w.mu.Lock()
	w.saving = false
	settings := slices.Clone(w.settings)
	w.mu.Unlock()
	kept, err := w.session(ctx)
	if err == nil && kept != nil {
		err = kept.Set(ctx, slices.DeleteFunc(settings, func(s session.Setting) bool { return len(s.Params) > maxSetting || !json.Valid(s.Params) })...)
	}
	if err != nil {
		w.proxy.log.Warn().Err(err).Str("session", w.id).Msg("how a session is set could not be written down")
	}
}

// maxSetting bounds what is kept of a setting, in bytes.
const maxSetting = 64 << 10

// setAsKept takes over how the session was set when it was last open.
func (w *wrapped) setAsKept(kept *session.Session) {
	settings := kept.Settings()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.settings) == 0 {
		w.settings = settings
	}
}

// setLike has w set as another session is.
func (w *wrapped) setLike(other *wrapped) {
	other.mu.Lock()
	settings := slices.Clone(other.settings)
	other.mu.Unlock()
	w.mu.Lock()
	w.settings = settings
	w.mu.Unlock()
}
