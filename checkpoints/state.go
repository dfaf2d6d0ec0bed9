package checkpoints

import (
	"encoding/json"
	"fmt"
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
	TooLarge   Reason = "too_large"   // a file over the limit for kept contents; its digest is known
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
}

// Same reports whether a and b are the same known state: kind, bytes and
// mode. An unknown state is the same as none. A file too large to keep is
// the same as itself by its digest, kept or not.
func (s State) Same(o State) bool {
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
}

// MarshalJSON encodes s as the session log and intents hold it.
func (s State) MarshalJSON() ([]byte, error) {
	j := stateJSON{Kind: s.Kind.String(), Mode: s.Mode, Size: s.Size, Reason: s.Reason}
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
	var j stateJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*s = State{Mode: j.Mode, Size: j.Size, Target: j.Target, Reason: j.Reason}
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
