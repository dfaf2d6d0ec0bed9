package protocol

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// encoding/json takes a member for a field whatever the case of its name, so
// that one which nobody knows could override one that is known. Here a name is
// exact: the names of other members are made to fit nothing before anything is
// decoded, in one pass over the names of those objects that are looked into.

// shape is what of a value is looked into. nil: nothing.
type shape struct {
	fields map[string]*shape // of an object
	elem   *shape            // of an array
}

var shapes sync.Map // reflect.Type: *shape

// shapeOf is the shape of what is decoded into a t.
func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := newShape(t)
	shapes.Store(t, s)
	return s
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func newShape(t reflect.Type) *shape {
	switch {
	case t.Kind() == reflect.Pointer:
		return newShape(t.Elem())
	case reflect.PointerTo(t).Implements(unmarshaler):
		return nil // it knows itself
	case t.Kind() == reflect.Slice:
		if elem := newShape(t.Elem()); elem != nil {
			return &shape{elem: elem}
		}
	case t.Kind() == reflect.Struct:
		s := &shape{fields: map[string]*shape{}}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				s.fields[name] = newShape(f.Type)
			}
		}
		return s
	}
	return nil
}

// field is the shape of the member with a quoted name, and whether it only
// looks like one that there is.
func (s *shape) field(quoted []byte) (_ *shape, like bool) {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var plain string
		if json.Unmarshal(quoted, &plain) != nil {
			return nil, false
		}
		name = []byte(plain)
	}
	if f, ok := s.fields[string(name)]; ok {
		return f, false
	}
	for known := range s.fields {
		if strings.EqualFold(known, string(name)) {
			return nil, true
		}
	}
	return nil, false
}

// exactly is params with only the names that are those of p's fields. What is
// no JSON is left to the decoder.
func exactly(params []byte, p any) []byte {
	s := shapeOf(reflect.TypeOf(p))
	if s == nil || len(s.fields) == 0 {
		return params
	}
	w := walk{b: params}
	w.value(s)
	if len(w.alike) == 0 {
		return params
	}
	params = slices.Clone(params)
	for _, at := range w.alike {
		// Of another name, of the same length, that no field has.
		name := params[at[0]+1 : at[1]-1]
		copy(name, bytes.Repeat([]byte("_"), len(name)))
	}
	return params
}

// walk goes through a value once.
type walk struct {
	b     []byte
	at    int
	alike [][2]int // where names stand that only look like a field's
}

// value passes the value at w.at, and reports whether there was one. It goes
// no deeper than s does: how deep a peer's value is, is the peer's choice.
func (w *walk) value(s *shape) bool {
	c := w.next()
	switch {
	case s != nil && s.fields != nil && c == '{':
		return w.members(s)
	case s != nil && s.elem != nil && c == '[':
		for w.at++; w.next() != ']'; {
			if !w.value(s.elem) {
				return false
			}
			if w.next() == ',' {
				w.at++
			}
		}
		w.at++
		return true
	}
	return w.skip()
}

// members passes an object.
func (w *walk) members(s *shape) bool {
	for w.at++; w.next() != '}'; {
		from := w.at
		if w.next() != '"' || !w.text() {
			return false
		}
		f, like := s.field(w.b[from:w.at])
		if like {
			w.alike = append(w.alike, [2]int{from, w.at})
		}
		if w.next() != ':' {
			return false
		}
		if w.at++; !w.value(f) {
			return false
		}
		if w.next() == ',' {
			w.at++
		}
	}
	w.at++
	return true
}

// next is the next byte that is no white space, 0 at the end.
func (w *walk) next() byte {
	for ; w.at < len(w.b); w.at++ {
		switch c := w.b[w.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// skip passes a value of any kind.
func (w *walk) skip() bool {
	depth := 0
	for from := w.at; w.at < len(w.b); {
		switch w.b[w.at] {
		case '"':
			if !w.text() {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return w.at > from
			}
			if c := w.b[w.at]; c == '}' || c == ']' {
				if depth--; depth == 0 {
					w.at++
					return true
				}
			}
		}
		w.at++
	}
	return false
}

// text passes a string.
func (w *walk) text() bool {
	for from := w.at + 1; ; {
		n := bytes.IndexByte(w.b[w.at+1:], '"')
		if n < 0 {
			return false
		}
		w.at += n + 1
		slashes := 0
		for i := w.at - 1; i >= from && w.b[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			w.at++
			return true
		}
	}
}
