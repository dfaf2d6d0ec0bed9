package session

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// Kind is the stable word for what went wrong; the wire carries it as data.kind.
type Kind string

const (
	NotFound           Kind = "session_not_found"
	EntryNotFound      Kind = "entry_not_found"
	CheckpointNotFound Kind = "checkpoint_not_found"
	CheckpointEvicted  Kind = "checkpoint_evicted"
	NothingToRedo      Kind = "nothing_to_redo"
	StateNotFound      Kind = "state_not_found"

	BadParams           Kind = "bad_params" // no kind of its own on the wire
	NoTurn              Kind = "no_turn"
	NotAUserEntry       Kind = "not_a_user_entry"
	PathNotInCheckpoint Kind = "path_not_in_checkpoint"
	EditNoMatch         Kind = "edit_no_match"
	EditAmbiguous       Kind = "edit_ambiguous"
	TrackingUnavailable Kind = "tracking_unavailable"

	Locked      Kind = "session_locked"
	TurnRunning Kind = "turn_running"

	Conflict      Kind = "conflict"
	StorageFull   Kind = "storage_full"
	StorageFailed Kind = "storage_failed"
	BlobMissing   Kind = "blob_missing"
	BlobDamaged   Kind = "blob_damaged"
	LogDamaged    Kind = "log_damaged"
	NewerVersion  Kind = "newer_version"
)

// Error is a refusal whose kind a caller branches on. Msg is a sentence for a
// person.
type Error struct {
	Kind Kind
	Msg  string
	// Data is what the wire adds to data: the owner's pid, the failed paths.
	Data map[string]any
	Err  error // the cause, if any
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Msg + ": " + e.Err.Error()
	}
	return e.Msg
}

func (e *Error) Unwrap() error { return e.Err }

// refuse makes an Error of kind whose message is formatted.
func refuse(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Msg: fmt.Sprintf(format, args...)}
}

// storageError is a failure of the disk: full, or worse.
func storageError(msg string, err error) error {
	kind := StorageFailed
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = StorageFull
		msg += "; the disk is full, free some space and try again"
	}
	return &Error{Kind: kind, Msg: msg, Err: err}
}

// blobError is a content that cannot be had.
func blobError(msg string, err error) error {
	kind := StorageFailed
	switch {
	case errors.Is(err, blobs.ErrMissing):
		kind = BlobMissing
	case errors.Is(err, blobs.ErrDamaged):
		kind = BlobDamaged
	}
	return &Error{Kind: kind, Msg: msg, Err: err}
}
