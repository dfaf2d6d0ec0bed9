package protocol

import (
	"bytes"
	"encoding/json"
)

// Nullable is a field where null says something and absence says something
// else.
type Nullable[T any] struct {
	Set   bool // the field was there
	Null  bool // and was null
	Value T
}

// UnmarshalJSON notes that the field is there.
func (n *Nullable[T]) UnmarshalJSON(b []byte) error {
	n.Set = true
	n.Null = string(bytes.TrimSpace(b)) == "null"
	return json.Unmarshal(b, &n.Value)
}

// Meta is an object's _meta, of which only our own member is read.
type Meta[T any] struct {
	Oino *T `json:"oino,omitempty"`
}

// Of is our member of m, or the zero value where there is none.
func (m *Meta[T]) Of() T {
	if m == nil || m.Oino == nil {
		var zero T
		return zero
	}
	return *m.Oino
}
