package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ParamsError is params that are not what the method takes. Msg is a sentence
// for a person and names the field.
type ParamsError struct{ Msg string }

func (e *ParamsError) Error() string { return e.Msg }

// wrong makes a ParamsError whose message is formatted.
func wrong(format string, args ...any) error {
	return &ParamsError{Msg: fmt.Sprintf(format, args...)}
}

// checker is params that know more of themselves than their types say.
type checker interface{ check() error }

// Decode reads the params of a request into p, a pointer to one of this
// package's Params. Absent params are an empty object; names are exact, and of
// the same name twice the last one counts. Every error is a *ParamsError.
func Decode(params json.RawMessage, p any) error {
	params = bytes.TrimSpace(params)
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage("{}")
	}
	if params[0] != '{' {
		return wrong("params must be an object")
	}
	params = exactly(params, p)
	if err := json.Unmarshal(params, p); err != nil {
		return decodeError(err)
	}
	if _, ok := p.(exact); ok && hasLoneSurrogate(params) {
		return wrong("params hold half of a surrogate pair, which is no character: a path or text cannot be taken from it exactly")
	}
	if c, ok := p.(checker); ok {
		return c.check()
	}
	return nil
}

// decodeError says in words of the wire what encoding/json says in Go's.
func decodeError(err error) error {
	if e, ok := errors.AsType[*ParamsError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := wirePath(e.Field)
		if field == "" {
			field = "params"
		}
		got := map[string]string{"string": "a string", "bool": "true or false", "array": "an array", "object": "an object", "number": "a number"}[e.Value]
		if got == "" {
			got = strings.TrimPrefix(e.Value, "number ") // one that does not fit, as 1.5
		}
		return wrong("%s must be %s, not %s", field, jsonName(e.Type), got)
	}
	return wrong("params cannot be read: %v", err)
}

// wirePath is the path of a field without the names of embedded structs, which
// encoding/json puts in. No field on the wire starts with a capital.
func wirePath(path string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(path, "."), func(name string) bool {
		return name != "" && 'A' <= name[0] && name[0] <= 'Z'
	}), ".")
}

// jsonName is what a value of type t is called on the wire.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// need refuses an empty value of a required field.
func need(field, value string) error {
	if value == "" {
		return wrong("%s is missing", field)
	}
	return nil
}

// oneOf refuses a value that is none of those allowed; "" is the default's.
func oneOf(field, value string, allowed ...string) error {
	if value == "" {
		return nil
	}
	if slices.Contains(allowed, value) {
		return nil
	}
	return wrong("%s is %q, want one of %s", field, value, strings.Join(allowed, ", "))
}

// notEmpty refuses a list that was given and names nothing: taken for "all",
// it would do the opposite of what it says.
func notEmpty(field string, list []string) error {
	if list != nil && len(list) == 0 {
		return wrong("%s is empty; leave it out for all", field)
	}
	return nil
}

// notNegative refuses a number below zero.
func notNegative(field string, n *int) error {
	if n != nil && *n < 0 {
		return wrong("%s is %d, want 0 or more", field, *n)
	}
	return nil
}

// first is the first of the errors that is one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// exact are params whose strings name or become bytes of a file, so that none
// of them may be replaced.
type exact interface{ exact() }

func (*RecordParams) exact() {}
func (*WriteParams) exact()  {}
func (*EditParams) exact()   {}
func (*DiffParams) exact()   {}
func (*RewindParams) exact() {}

// hasLoneSurrogate reports whether valid JSON escapes half of a surrogate pair
// without the other: encoding/json puts another character there.
func hasLoneSurrogate(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+2 > len(b) {
			return false
		}
		if b[i+1] != 'u' {
			b = b[i+2:]
			continue
		}
		r, ok := escaped(b[i:])
		if b = b[i+6:]; !ok || !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := escaped(b)
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return true
		}
		b = b[6:]
	}
}

// escaped reads a \u escape at the start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
