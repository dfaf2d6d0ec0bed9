package rpc

import (
	"context"
	"errors"
	"maps"
	"syscall"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// wireError is the one place that picks a code for the peer.
func wireError(err error) *jsonrpc2.Error {
	if e, ok := errors.AsType[*jsonrpc2.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return &jsonrpc2.Error{Code: protocol.CodeCancelled, Message: err.Error()}
	}
	if e, ok := errors.AsType[*protocol.ParamsError](err); ok {
		return &jsonrpc2.Error{Code: protocol.CodeInvalidParams, Message: e.Msg}
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		return kindError(codeOf(e.Kind), err, string(e.Kind), e.Data)
	}
	if e, ok := errors.AsType[*checkpoints.PathError](err); ok {
		return kindError(protocol.CodeInvalidParams, err, e.Kind, map[string]any{"path": e.Path})
	}
	if kind := storageKind(err); kind != "" {
		return kindError(protocol.CodeStorage, err, string(kind), nil)
	}
	return &jsonrpc2.Error{Code: protocol.CodeInternalError, Message: err.Error()}
}

// kindError is an error with data. Params that are merely wrong have no kind
// to branch on.
func kindError(code int64, err error, kind string, more map[string]any) *jsonrpc2.Error {
	e := &jsonrpc2.Error{Code: code, Message: err.Error()}
	data := map[string]any{}
	maps.Copy(data, more)
	if kind != string(session.BadParams) {
		data["kind"] = kind
	}
	if len(data) == 0 {
		return e
	}
	if raw, err := protocol.Encode(data); err == nil {
		e.Data = &raw
	}
	return e
}

// codeOf is the code of a refusal of package session.
func codeOf(kind session.Kind) int64 {
	switch kind {
	case session.NotFound, session.EntryNotFound, session.CheckpointNotFound, session.CheckpointEvicted,
		session.NothingToRedo, session.StateNotFound:
		return protocol.CodeNotFound
	case session.BadParams, session.NoTurn, session.NotAUserEntry, session.PathNotInCheckpoint,
		session.EditNoMatch, session.EditAmbiguous, session.TrackingUnavailable:
		return protocol.CodeInvalidParams
	case session.Locked, session.TurnRunning:
		return protocol.CodeRefused
	case session.Conflict:
		return protocol.CodeConflict
	case session.StorageFull, session.StorageFailed, session.BlobMissing, session.BlobDamaged,
		session.LogDamaged, session.NewerVersion:
		return protocol.CodeStorage
	}
	return protocol.CodeInternalError
}

// storageKind is the kind of a failure of the disk or the kept contents that
// no layer below gave a name, or "".
func storageKind(err error) session.Kind {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return session.StorageFull
	case errors.Is(err, blobs.ErrMissing):
		return session.BlobMissing
	case errors.Is(err, blobs.ErrDamaged):
		return session.BlobDamaged
	}
	if _, ok := errors.AsType[*blobs.Error](err); ok {
		return session.StorageFailed
	}
	return ""
}
