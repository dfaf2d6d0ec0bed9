package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrDamaged is a line that is whole but is not what was written.
var ErrDamaged = errors.New("the log is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The member that ends a line is `,"crc":"` + 8 hex digits + `"}`.
const (
	memberStart = `,"crc":"`
	memberEnd   = `"}`
	memberLen   = len(memberStart) + 8 + len(memberEnd)
)

// Encode appends object, a JSON object, to dst as a line: its last member is
// "crc", CRC-32C in hex (8 digits) of the bytes before `,"crc"`. It refuses
// what cannot be one: an empty object, a newline, bytes that do not begin with
// `{"` and end with `}`.
func Encode(dst, object []byte) ([]byte, error) {
	if len(object) < 3 || object[0] != '{' || object[1] != '"' || object[len(object)-1] != '}' {
		return dst, fmt.Errorf("a log line is a JSON object with a member, not %.40q", object)
	}
	if bytes.IndexByte(object, '\n') >= 0 {
		return dst, fmt.Errorf("a log line holds no newline, and this object does: %.40q", object)
	}
	covered := object[:len(object)-1]
	dst = append(dst, covered...)
	dst = append(dst, memberStart...)
	dst = appendSum(dst, covered)
	return append(dst, memberEnd+"\n"...), nil
}

// Decode returns the object of a line (without its newline), or ErrDamaged.
// There is exactly one line for an object: what Decode takes, Encode gives.
func Decode(line []byte) (object []byte, err error) {
	n, err := verify(line)
	if err != nil {
		return nil, err
	}
	return append(line[:n:n], '}'), nil
}

// HasSum reports whether line ends as Encode ends one, whether or not the sum
// is right.
func HasSum(line []byte) bool {
	n := len(line) - memberLen
	return n >= 0 && string(line[n:n+len(memberStart)]) == memberStart && string(line[len(line)-len(memberEnd):]) == memberEnd
}

// verify returns how many bytes of line its sum covers: its object is these
// and a brace.
func verify(line []byte) (int, error) {
	n := len(line) - memberLen
	if n < 2 || line[0] != '{' || line[1] != '"' || !HasSum(line) {
		return 0, fmt.Errorf("%w: not a line of it: %.40q", ErrDamaged, line)
	}
	var sum [8]byte
	if !bytes.Equal(appendSum(sum[:0], line[:n]), line[n+len(memberStart):n+len(memberStart)+8]) {
		return 0, fmt.Errorf("%w: wrong checksum of %.40q", ErrDamaged, line)
	}
	if bytes.IndexByte(line[:n], '\n') >= 0 {
		return 0, fmt.Errorf("%w: a newline in %.40q", ErrDamaged, line)
	}
	return n, nil
}

// appendSum appends the sum of b in hex.
func appendSum(dst, b []byte) []byte {
	sum := crc32.Checksum(b, castagnoli)
	return hex.AppendEncode(dst, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}
