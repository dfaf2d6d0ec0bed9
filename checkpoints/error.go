package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// The kinds of a PathError.
const (
	outsideRoots = "outside_roots"
	badPath      = "bad_path"
)

// PathError is a path that cannot be used as it was given. Kind is the wire's
// word for it: "outside_roots" or "bad_path".
type PathError struct {
	Path string
	Kind string
	Msg  string
}

func (e *PathError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Msg) }

// errChanged is a file that is not the one, or not as, it was a moment ago.
var errChanged = errors.New("it kept changing while it was read")

// unconfirmed is a failed sync of what is in place already.
type unconfirmed struct{ error }

func (e unconfirmed) Unwrap() error { return e.error }

// absent reports an error that says there is no such file: the name is
// missing, or what should be the directory around it is none.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// twice does what puts things in order again, and once more if it fails: a
// passing fault is not to leave them out of order.
func twice(f func() error) error {
	if err := f(); err == nil || absent(err) || notEmpty(err) {
		return err
	}
	return f()
}

// diskFull reports an error whose cause is a full disk or quota.
func diskFull(err error) bool {
	for _, e := range fullErrors {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// cause is what the disk said, without the operation and the name (often a
// temporary one) that a reader of the whole sentence knows better.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// ioFailure is the failure of a path by an error of the disk. doing says, for
// a person, what could not be done.
func ioFailure(path, doing string, err error) Failure {
	return Failure{Path: path, Code: CodeIO, Message: fmt.Sprintf("%s: %v", doing, cause(err)), Full: diskFull(err)}
}

// blobFailure is the failure of a path whose content cannot be had.
func blobFailure(path string, err error) Failure {
	f := Failure{Path: path, Code: CodeIO, Message: err.Error(), Full: diskFull(err)}
	switch {
	case errors.Is(err, blobs.ErrMissing):
		f.Code = CodeMissingBlob
	case errors.Is(err, blobs.ErrDamaged):
		f.Code = CodeDamagedBlob
	}
	return f
}
