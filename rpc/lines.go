package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
)

// lineReader cuts a stream into lines. It never holds more of a line than the
// limit allows.
type lineReader struct {
	r   *bufio.Reader
	max int
	err error // sticky: what ended the stream
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, headBytes), max: max}
}

// line is one line without its line break. Of one that is longer than the
// limit there is only what its ends say; see endsOf.
type line struct {
	bytes   []byte
	tooLong bool
	tail    []byte // of one that is too long, while it is read
}

// next reads the next line. A last one without a line break counts.
func (l *lineReader) next() (line, error) {
	if l.err != nil {
		return line{}, l.err
	}
	return l.rest(l.r.ReadSlice('\n'))
}

// rest reads on after the first part of a line.
func (l *lineReader) rest(part []byte, err error) (line, error) {
	var ln line
	for ; ; part, err = l.r.ReadSlice('\n') {
		ln.add(part, l.max)
		switch {
		case err == nil:
			return ln.whole(), nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		}
		l.err = err
		if errors.Is(err, io.EOF) && (len(ln.bytes) > 0) {
			return ln.whole(), nil
		}
		return line{}, err
	}
}

// view is next for whoever is done with the line before the next call: the
// bytes may be those of the buffer.
func (l *lineReader) view() (line, error) {
	if l.err == nil {
		if part, err := l.r.ReadSlice('\n'); err == nil && len(part)-1 <= l.max {
			return line{bytes: part[:len(part)-1]}, nil
		} else {
			return l.rest(part, err)
		}
	}
	return line{}, l.err
}

// ahead waits for something and returns what can be had without waiting more:
// lines, of which the last may be cut off. They are valid, and come again, until
// skip or the next line. Nothing: next and view say why.
func (l *lineReader) ahead() []byte {
	if l.err != nil || l.max < headBytes {
		return nil
	}
	_, _ = l.r.Peek(1) // an error comes again
	lines, _ := l.r.Peek(l.r.Buffered())
	return lines
}

// skip goes on behind n bytes of what is ahead.
func (l *lineReader) skip(n int) { _, _ = l.r.Discard(n) } // they are there

// ready reports whether the next line can be had without waiting.
func (l *lineReader) ready() bool {
	part, _ := l.r.Peek(l.r.Buffered())
	return bytes.IndexByte(part, '\n') >= 0
}

// add appends a part of the line, up to limit bytes of it.
func (ln *line) add(part []byte, limit int) {
	part = bytes.TrimSuffix(part, []byte("\n"))
	switch {
	case ln.tooLong:
		ln.keepTail(part)
	case len(ln.bytes)+len(part) > limit:
		ln.tooLong = true
		ln.keepTail(ln.bytes)
		ln.keepTail(part)
		head := ln.bytes[:min(len(ln.bytes), headBytes)]
		rest := part[:min(len(part), headBytes-len(head))]
		ln.bytes = append(bytes.Clone(head), rest...) // lets the memory of the others go
	default:
		if free := cap(ln.bytes) - len(ln.bytes); len(part) > free && len(ln.bytes) > 0 {
			ln.bytes = slices.Grow(ln.bytes, max(len(ln.bytes), len(part))) // append alone would copy a long line many times
		}
		ln.bytes = append(ln.bytes, part...)
	}
}

// keepTail keeps the last bytes of the line, of which part is the next.
func (ln *line) keepTail(part []byte) {
	ln.tail = append(ln.tail, part[max(0, len(part)-tailBytes):]...)
	ln.tail = append(ln.tail[:0], ln.tail[max(0, len(ln.tail)-tailBytes):]...)
}

// whole is the line when nothing of it is to come.
func (ln line) whole() line {
	if ln.tooLong {
		ln.bytes, ln.tail = endsOf(ln.bytes, ln.tail), nil
	}
	return ln
}

// errClosed is a write after the end.
var errClosed = errors.New("the connection is closed")

// lineWriter writes whole lines, each with one Write. The first error stays:
// after half a line nothing that follows could be understood.
type lineWriter struct {
	broken func(error) // called once, with the first error of w

	mu  sync.Mutex
	w   io.Writer
	buf []byte // lines that were added and not yet written
	err error
}

// write writes a line that ends in its line break.
func (l *lineWriter) write(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit()
	l.out(b)
	return l.err
}

// add writes a line, whose break it adds, with the next flush or write.
func (l *lineWriter) add(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf)+len(b) >= addedBytes {
		l.emit()
	}
	if l.err == nil {
		l.buf = append(append(l.buf, b...), '\n')
	}
	if len(l.buf) >= addedBytes {
		l.emit()
	}
	if cap(l.buf) > 2*addedBytes {
		l.buf = nil // of a line that was very long
	}
	return l.err
}

// addLines is add for lines that have their breaks.
func (l *lineWriter) addLines(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	direct := len(b) >= addedBytes/2
	if direct || len(l.buf)+len(b) >= addedBytes {
		l.emit()
	}
	if direct {
		l.out(b)
	} else if l.err == nil {
		l.buf = append(l.buf, b...)
	}
	return l.err
}

// addedBytes is how much is added up before it is written.
const addedBytes = 64 << 10

// flush writes what was added.
func (l *lineWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit()
}

func (l *lineWriter) emit() {
	if len(l.buf) > 0 {
		l.out(l.buf)
		l.buf = l.buf[:0]
	}
}

func (l *lineWriter) out(b []byte) {
	if l.err != nil {
		return
	}
	if _, err := l.w.Write(b); err != nil {
		l.err = err
		l.broken(err)
	}
}

// close lets no further line out.
func (l *lineWriter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errClosed
	}
}
