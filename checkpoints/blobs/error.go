package blobs

import (
	"errors"
	"fmt"
)

// ErrMissing is a content that is not in the store.
var ErrMissing = errors.New("the kept content is missing")

// ErrDamaged is a content whose bytes no longer have its digest.
var ErrDamaged = errors.New("the kept content is damaged")

// ErrTooLarge is a content over the limit given to Get.
var ErrTooLarge = errors.New("the kept content is too large")

// ErrInUse is a store that a session holds at this moment.
var ErrInUse = errors.New("the blob store is in use")

// ErrBroken is a store that failed to write or sync, and takes no more
// contents until it is opened again.
var ErrBroken = errors.New("the blob store could not be written and takes nothing more until it is opened again")

// Error is a failure to read one content. Err is or wraps ErrMissing,
// ErrDamaged, ErrTooLarge, or what the disk said.
type Error struct {
	Digest Digest
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("content %s: %v", e.Digest, e.Err) }
func (e *Error) Unwrap() error { return e.Err }
