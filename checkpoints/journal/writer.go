package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// ErrBroken is a log that failed to write or sync, and refuses until it is
// opened again.
var ErrBroken = errors.New("the log could not be written and takes nothing more until it is opened again")

// Writer appends to one log. The caller holds the log's lock. It is safe for
// concurrent use.
type Writer struct {
	name string
	file disk.File

	mu     sync.Mutex
	end    int64 // where the next line goes; all before it is synced
	broken error // set once
}

// Create writes a new log whose first lines are objects, 0600, durably with
// its name. An existing one is an error that wraps fs.ErrExist.
func Create(root disk.Root, name string, objects ...[]byte) (*Writer, error) {
	w := &Writer{name: name}
	data, _, err := w.encode(objects)
	if err != nil {
		return nil, err
	}
	// The lock makes this look and the rename in Publish one step.
	if _, err := root.Lstat(name); err == nil {
		return nil, w.error("creating", fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, w.error("creating", err)
	}
	if err := disk.Publish(root, name, data, 0o600); err != nil {
		// The rename may have happened and only its sync failed. Nobody was
		// told of this log, so nobody shall find it.
		if err := root.Remove(name); err == nil {
			root.SyncDir(path.Dir(name))
		}
		return nil, w.error("creating", err)
	}
	w.file, err = root.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		root.Remove(name)
		return nil, w.error("creating", err)
	}
	w.end = int64(len(data))
	return w, nil
}

// OpenWriter opens the log name for appending, passes every line to f, and
// cuts a torn tail (or ends an unclosed one). When it returns, all that it
// passed on is durable. An error of f is returned as it is.
func OpenWriter(root disk.Root, name string, maxLine int, f func(Line) error) (*Writer, error) {
	w := &Writer{name: name}
	var err error
	if w.file, err = root.OpenFile(name, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return nil, w.error("opening", err)
	}
	if err := w.open(root, maxLine, f); err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

func (w *Writer) open(root disk.Root, maxLine int, f func(Line) error) error {
	var stopped error // f's own error needs no file name
	tail, err := Scan(w.file, maxLine, func(l Line) error {
		if l.Err != nil {
			l.Err = fmt.Errorf("log %s, %w", w.name, l.Err)
		}
		stopped = f(l)
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	if err != nil {
		return w.error("reading", err)
	}
	w.end = tail.End
	if tail.Torn > 0 {
		if err := w.file.Truncate(tail.End); err != nil {
			return w.error("cutting the unfinished end of", err)
		}
	}
	if tail.Unclosed {
		if _, err := w.file.Write([]byte("\n")); err != nil {
			return w.error("ending the last line of", err)
		}
		w.end++
	}
	if err := w.file.Sync(); err != nil {
		return w.error("syncing", err)
	}
	if err := root.SyncDir(path.Dir(w.name)); err != nil {
		return w.error("syncing the directory of", err)
	}
	return nil
}

// Append adds objects as lines, in one write and one sync, and says where each
// lies. When it fails the log is cut back to what it was, and stays in use, if
// that can be done and synced; else, and after any failed sync, the writer is broken.
func (w *Writer) Append(objects ...[]byte) ([]Pos, error) {
	if len(objects) == 0 {
		return nil, w.Broken()
	}
	data, places, err := w.encode(objects)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	if _, err := w.file.Write(data); err != nil {
		if w.cutBack() != nil {
			w.broken = w.error("appending to", fmt.Errorf("%w: %w", ErrBroken, err))
			return nil, w.broken
		}
		return nil, w.error("appending to", err)
	}
	if err := w.file.Sync(); err != nil {
		// What the failed sync left in memory but not on the disk would be
		// read as whole by whoever opens the log next. Best not to find it.
		w.cutBack()
		w.broken = w.error("syncing", fmt.Errorf("%w: %w", ErrBroken, err))
		return nil, w.broken
	}
	for i := range places {
		places[i].Offset += w.end
	}
	w.end += int64(len(data))
	return places, nil
}

// cutBack takes away what a failed append has left.
func (w *Writer) cutBack() error {
	if err := w.file.Truncate(w.end); err != nil {
		return err
	}
	return w.file.Sync()
}

// encode returns objects as lines, and their places from the first one on.
func (w *Writer) encode(objects [][]byte) ([]byte, []Pos, error) {
	size := 0
	for _, o := range objects {
		size += len(o) + memberLen
	}
	data := slices.Grow([]byte(nil), size)
	places := make([]Pos, 0, len(objects))
	for _, o := range objects {
		start := len(data)
		var err error
		if data, err = Encode(data, o); err != nil {
			return nil, nil, w.error("appending to", err)
		}
		places = append(places, Pos{Offset: int64(start), Length: len(data) - 1 - start})
	}
	return data, places, nil
}

// ReadAt returns the object at pos, verified.
func (w *Writer) ReadAt(pos Pos) ([]byte, error) {
	w.mu.Lock()
	end := w.end
	w.mu.Unlock()
	if pos.Offset < 0 || pos.Length < 0 || pos.Offset > end || int64(pos.Length) > end-pos.Offset {
		return nil, w.error("reading", fmt.Errorf("%w: no line at byte %d, it has %d", ErrDamaged, pos.Offset, end))
	}
	line := make([]byte, pos.Length)
	if _, err := w.file.ReadAt(line, pos.Offset); err != nil {
		return nil, w.error("reading", err)
	}
	n, err := verify(line)
	if err != nil {
		return nil, w.error("reading", fmt.Errorf("at byte %d: %w", pos.Offset, err))
	}
	line[n] = '}'
	return line[: n+1 : n+1], nil
}

// Broken returns why the writer refuses, or nil.
func (w *Writer) Broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

// Close closes the file. It writes nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = w.error("appending to", fs.ErrClosed)
	}
	return w.file.Close()
}

// error says which log err is about.
func (w *Writer) error(doing string, err error) error {
	return fmt.Errorf("%s log %s: %w", doing, w.name, err)
}
