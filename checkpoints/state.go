package checkpoints

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// Kind is what a path was.
type Kind uint8

const (
	Unknown   Kind = iota // not looked at; only an after state may be unknown
	Absent                // no such file, under a parent that was seen
	File                  // a regular file
	Symlink               // a symbolic link, whatever it leads to
	Dir                   // a directory
	Uncovered             // something whose state could not be kept; see State.Reason
)

var kindNames = [...]string{"unknown", "absent", "file", "symlink", "dir", "uncovered"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Reason says why a state is Uncovered.
type Reason string

const (
	TooLarge   Reason = "too_large"   // a file over the limit for kept contents; its digest may be known
	NotRegular Reason = "not_regular" // a FIFO, a socket, a device
	Unreadable Reason = "unreadable"  // any failure but "no such file"
	Excluded   Reason = "excluded"    // ignore rules skipped it
	Budget     Reason = "budget"      // the tree is over its budget
	BadName    Reason = "bad_name"    // a name that is not UTF-8
)

// State is what one path was at one moment.
type State struct {
	Kind   Kind
	Mode   uint32       // permission bits with setuid, setgid and sticky, as in stat(2); files and directories
	Size   int64        // bytes, of a file or one too large
	Digest blobs.Digest // of a file or one too large
	Target string       // of a symlink, its bytes as they are
	Reason Reason       // of an uncovered path
	// Stamp, of a file too large, is which file it was and when it last changed,
	// in place of a digest that nobody took; 0 where that does not tell.
	Stamp uint64
}

// Same reports whether a and b are the same known state: kind, bytes and
// mode. An unknown state is the same as none. A file too large to keep is
// the same as itself by its digest, kept or not, or by its stamp.
func (s State) Same(o State) bool {
	if s.Stamp != 0 && s.Stamp == o.Stamp {
		return true
	}
	a, b := s.comparable(), o.comparable()
	if a.Kind == Unknown || a.Kind == Uncovered || b.Kind == Unknown || b.Kind == Uncovered {
		return false
	}
	return a == b
}

// comparable is s with a file too large to keep taken as the file it is.
func (s State) comparable() State {
	if s.Kind == Uncovered && s.Reason == TooLarge && s.Digest != (blobs.Digest{}) {
		return State{Kind: File, Mode: s.Mode, Size: s.Size, Digest: s.Digest}
	}
	return s
}

// stateJSON is a State in a log. Target is base64 where it is not UTF-8.
type stateJSON struct {
	Kind        string        `json:"kind"`
	Mode        uint32        `json:"mode,omitempty"`
	Size        int64         `json:"size,omitempty"`
	Digest      *blobs.Digest `json:"digest,omitempty"`
	Target      string        `json:"target,omitempty"`
	TargetBytes []byte        `json:"targetBytes,omitempty"`
	Reason      Reason        `json:"reason,omitempty"`
	Stamp       uint64        `json:"stamp,omitempty"`
}

// MarshalJSON encodes s as the session log and intents hold it. Logs are
// mostly states of files; encoding/json takes twice as long to write one, and
// ten times to read it.
func (s State) MarshalJSON() ([]byte, error) {
	if s.isPlainFile() {
		return s.appendFile(make([]byte, 0, plainFile)), nil
	}
	j := stateJSON{Kind: s.Kind.String(), Mode: s.Mode, Size: s.Size, Reason: s.Reason, Stamp: s.Stamp}
	if s.Digest != (blobs.Digest{}) {
		j.Digest = &s.Digest
	}
	if utf8.ValidString(s.Target) {
		j.Target = s.Target
	} else {
		j.TargetBytes = []byte(s.Target)
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes what MarshalJSON wrote; a kind it does not know is an error.
func (s *State) UnmarshalJSON(b []byte) error {
	if f, ok := parseFile(b); ok {
		*s = f
		return nil
	}
	var j stateJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*s = State{Mode: j.Mode, Size: j.Size, Target: j.Target, Reason: j.Reason, Stamp: j.Stamp}
	if j.TargetBytes != nil {
		s.Target = string(j.TargetBytes)
	}
	if j.Digest != nil {
		s.Digest = *j.Digest
	}
	for k, name := range kindNames {
		if name == j.Kind {
			s.Kind = Kind(k)
			return nil
		}
	}
	return fmt.Errorf("a state of kind %q, which this oinod does not know", j.Kind)
}

// isPlainFile reports whether s is a file with a digest and nothing else.
func (s State) isPlainFile() bool {
	return s.Kind == File && s.Digest != (blobs.Digest{}) && s.Target == "" && s.Reason == "" && s.Stamp == 0
}

const (
	fileStart  = `{"kind":"file"`
	modeName   = `,"mode":`
	sizeName   = `,"size":`
	digestName = `,"digest":"`
	fileEnd    = `"}`
)

// appendFile appends a plain file's encoding, which is that of stateJSON.
func (s State) appendFile(b []byte) []byte {
	b = append(b, fileStart...)
	if s.Mode != 0 {
		b = strconv.AppendUint(append(b, modeName...), uint64(s.Mode), 10)
	}
	if s.Size != 0 {
		b = strconv.AppendInt(append(b, sizeName...), s.Size, 10)
	}
	b = append(b, digestName...)
	b = hex.AppendEncode(b, s.Digest[:])
	return append(b, fileEnd...)
}

// parseFile reads what appendFile wrote. Whatever else it is is not its to judge.
func parseFile(b []byte) (State, bool) {
	rest, ok := bytes.CutPrefix(b, []byte(fileStart))
	if !ok {
		return State{}, false
	}
	s := State{Kind: File}
	n, rest := cutNumber(rest, modeName)
	s.Mode = uint32(n)
	s.Size, rest = cutNumber(rest, sizeName)
	rest, ok = bytes.CutPrefix(rest, []byte(digestName))
	if !ok || len(rest) < 2*len(s.Digest) || s.Digest.UnmarshalText(rest[:2*len(s.Digest)]) != nil {
		return State{}, false
	}
	// A state has one encoding: what only looks like it is somebody else's.
	var again [160]byte
	return s, s.isPlainFile() && bytes.Equal(s.appendFile(again[:0]), b)
}

// cutNumber takes a member's name and its number off b, where it begins with them.
func cutNumber(b []byte, name string) (n int64, rest []byte) {
	rest, ok := bytes.CutPrefix(b, []byte(name))
	for ok && len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9' {
		n = 10*n + int64(rest[0]-'0')
		rest = rest[1:]
	}
	return n, rest
}

// Change is how a path went from one state to another, as a user sees it.
type Change string

const (
	Created  Change = "created"
	Modified Change = "modified"
	Deleted  Change = "deleted"
)

// ChangeOf names the change from before to after; "" where there is none.
func ChangeOf(before, after State) Change {
	switch {
	case before.Same(after):
		return ""
	case before.Kind == Uncovered && before == after:
		return "" // nothing is known to have changed
	case before.Kind == Absent:
		return Created
	case after.Kind == Absent:
		return Deleted
	}
	return Modified
}
