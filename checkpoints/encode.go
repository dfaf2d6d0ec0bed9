package checkpoints

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// AppendSteps appends the JSON of steps, as encoding/json has it without
// escaping for HTML. A rewind's intent is mostly steps, and nothing else can go
// on while it is written: encoding/json takes ten times as long.
func AppendSteps(b []byte, steps []Step) ([]byte, error) {
	size := 2
	for i := range steps {
		size += 3*plainFile + len(steps[i].Path) + len(steps[i].Temp) + len(steps[i].Aside) + 64
	}
	b = append(slices.Grow(b, size), '[')
	for i := range steps {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = steps[i].appendJSON(b); err != nil {
			return nil, fmt.Errorf("the step for %s: %w", steps[i].Path, err)
		}
	}
	return append(b, ']'), nil
}

func (s *Step) appendJSON(b []byte) ([]byte, error) {
	if !s.From.isPlain() || !s.To.isPlain() || !s.Saved.isPlain() || !isPlain(s.Path) || !isPlain(s.Temp) || !isPlain(s.Aside) || s.Parents != nil || s.Merged {
		return AppendValue(b, s)
	}
	b = appendMember(b, `{"path":"`, s.Path)
	b = s.From.appendPlain(append(b, `,"from":`...))
	b = s.To.appendPlain(append(b, `,"to":`...))
	if s.Temp != "" {
		b = appendMember(b, `,"temp":"`, s.Temp)
	}
	if s.Aside != "" {
		b = appendMember(b, `,"aside":"`, s.Aside)
	}
	b = s.Saved.appendPlain(append(b, `,"saved":`...))
	return append(b, '}'), nil
}

// appendMember appends a member whose value is a string that isPlain.
func appendMember(b []byte, name, value string) []byte {
	return append(append(append(b, name...), value...), '"')
}

// AppendString appends s as a JSON string, as AppendSteps has strings.
func AppendString(b []byte, s string) ([]byte, error) {
	if isPlain(s) {
		return appendMember(b, `"`, s), nil
	}
	return AppendValue(b, s)
}

// AppendValue appends v as encoding/json has it without escaping for HTML.
func AppendValue(b []byte, v any) ([]byte, error) {
	var rest bytes.Buffer
	enc := json.NewEncoder(&rest)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return append(b, bytes.TrimSuffix(rest.Bytes(), []byte("\n"))...), nil
}

// plainFile is about how long the encoding of a file's state is.
const plainFile = 128

// isPlain reports whether s stands in JSON as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// isPlain reports whether appendPlain knows s: a plain file, or nothing.
func (s State) isPlain() bool { return s.isPlainFile() || s == State{Kind: Absent} }

func (s State) appendPlain(b []byte) []byte {
	if s.Kind == Absent {
		return append(b, `{"kind":"absent"}`...)
	}
	return s.appendFile(b)
}
