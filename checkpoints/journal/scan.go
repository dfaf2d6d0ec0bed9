package journal

import (
	"bytes"
	"fmt"
	"io"
)

// Pos is where a line lies in its log.
type Pos struct {
	Offset int64 // of its first byte
	Length int   // bytes, the newline not counted
}

// Line is one line as Scan finds it.
type Line struct {
	Number int // from 1; zeros and the line behind them have the same
	Pos    Pos
	Object []byte // the JSON object without its crc member; valid until the next line is read
	Err    error  // wraps ErrDamaged where the line does not verify; Object is then nil
}

// Tail is how a log ends.
type Tail struct {
	End      int64 // where the last whole line ends: the next one goes here
	Torn     int64 // bytes after End that are an unfinished line
	Unclosed bool  // the last line is whole and verifies but lacks its newline; it counts as whole
}

// Scan reads a log line by line with memory for one line (at most maxLine
// bytes; a longer one is damage). A last line without its newline is Torn:
// not passed to f unless it verifies. An error of f ends the scan and is
// returned as it is.
func Scan(r io.Reader, maxLine int, f func(Line) error) (Tail, error) {
	s := scanner{r: r, buf: make([]byte, 0, 64<<10), maxLine: maxLine}
	var end int64
	for number := 1; ; number++ {
		line, length, closed, err := s.next()
		if err != nil {
			return Tail{End: end}, err
		}
		if !closed && length == 0 {
			return Tail{End: end}, nil
		}
		l := Line{Number: number, Pos: Pos{Offset: end, Length: int(length)}}
		if length > int64(maxLine) {
			l.Err = fmt.Errorf("%w: line %d has %d bytes, more than the %d that are read", ErrDamaged, number, length, maxLine)
		} else if n, err := verify(line); err != nil {
			l.Err = fmt.Errorf("line %d: %w", number, err)
			if zeros := leadingZeros(line); zeros > 0 {
				if n, err := verify(line[zeros:]); err == nil {
					// Zeros took the place of whole lines, newlines and all.
					lost := Line{Number: number, Pos: Pos{Offset: end, Length: zeros}}
					lost.Err = fmt.Errorf("%w: line %d begins with %d zero bytes in the place of others", ErrDamaged, number, zeros)
					if err := f(lost); err != nil {
						return Tail{End: end}, err
					}
					line = line[zeros:]
					l.Pos = Pos{Offset: end + int64(zeros), Length: len(line)}
					line[n] = '}'
					l.Object, l.Err = line[:n+1:n+1], nil
				}
			}
		} else {
			line[n] = '}' // the comma before the member; the line is not needed any more
			l.Object = line[: n+1 : n+1]
		}
		if !closed && l.Err != nil {
			return Tail{End: end, Torn: length}, nil
		}
		end += length
		if closed {
			end++
		}
		if err := f(l); err != nil {
			return Tail{End: end, Unclosed: !closed}, err
		}
		if !closed {
			return Tail{End: end, Unclosed: true}, nil
		}
	}
}

// leadingZeros counts the NUL bytes that b begins with.
func leadingZeros(b []byte) int {
	return len(b) - len(bytes.TrimLeft(b, "\x00"))
}

// scanner splits a reader into lines.
type scanner struct {
	r       io.Reader
	buf     []byte // buf[start:] is read and not yet given out
	start   int
	maxLine int
	err     error // what the reader ended with
}

// next returns the next line without its newline, its length, and whether it
// had one. Of a line longer than maxLine only the length is right.
func (s *scanner) next() (line []byte, length int64, closed bool, err error) {
	searched := 0       // bytes of the line that hold no newline
	skipped := int64(0) // bytes of the line that are no longer in buf
	for {
		pending := s.buf[s.start:]
		if i := bytes.IndexByte(pending[searched:], '\n'); i >= 0 {
			line = pending[:searched+i]
			s.start += len(line) + 1
			return line, skipped + int64(len(line)), true, nil
		}
		if s.err == io.EOF {
			s.start = len(s.buf)
			return pending, skipped + int64(len(pending)), false, nil
		}
		if s.err != nil {
			return nil, 0, false, s.err
		}
		searched = len(pending)
		if skipped > 0 || searched > s.maxLine {
			skipped += int64(searched)
			searched = 0
			s.start = len(s.buf)
		}
		s.fill()
	}
}

// fill reads more behind what is pending, making room for it first.
func (s *scanner) fill() {
	if s.start > 0 {
		s.buf = s.buf[:copy(s.buf, s.buf[s.start:])]
		s.start = 0
	}
	if len(s.buf) == cap(s.buf) {
		s.buf = append(make([]byte, 0, 2*cap(s.buf)), s.buf...)
	}
	var n int
	n, s.err = s.r.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
}
