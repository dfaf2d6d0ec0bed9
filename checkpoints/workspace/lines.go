package workspace

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/oino-dev/oinod/checkpoints"
)

// formatVersion is the journal's.
const formatVersion = 1

const (
	maxLine  = 256 << 20 // bytes of one line that are read
	partSize = 256 << 10 // bytes of records in one line
	maxClaim = 1000      // claims in one line
)

// The lines of a journal. Every struct's first member is its type.
type (
	headLine struct {
		Type      string              `json:"type"` // tree
		Version   int                 `json:"version"`
		ID        string              `json:"id"` // of the journal: a capture's number means nothing in another
		Root      string              `json:"root"`
		CreatedAt int64               `json:"createdAt"`
		Base      uint64              `json:"base"` // the capture that the base records stand for; 0: there are none
		Holds     map[string][]uint64 `json:"holds,omitempty"`
		Turns     map[string]uint64   `json:"turns,omitempty"` // open at the base, since which capture
	}
	partLine struct {
		Type    string `json:"type"` // base, or part: of the capture that follows
		N       int    `json:"n"`    // from 0; another 0 means that the capture before was not finished
		Records []byte `json:"records"`
	}
	captureLine struct {
		Type    string   `json:"type"` // capture
		Seq     uint64   `json:"seq"`
		At      int64    `json:"at"`
		Session string   `json:"session"`
		Begin   bool     `json:"begin,omitempty"` // a turn of the session begins here
		End     bool     `json:"end,omitempty"`   // and the one before ends here
		Parts   int      `json:"parts"`           // lines of records before it
		Rules   string   `json:"rules"`
		Held    []string `json:"held,omitempty"`  // rules of the session's earlier captures that were followed as well
		Extra   []string `json:"extra,omitempty"` // paths covered although the rules skip them
		Blind   []string `json:"blind,omitempty"` // directories that could not be seen: what is below is as it was before
		Over    bool     `json:"over,omitempty"`  // over the budget: what is not known may be there
	}
	claimLine struct {
		Type    string  `json:"type"` // claim
		Session string  `json:"session"`
		At      int64   `json:"at"`
		Claims  []claim `json:"claims"`
	}
	claim struct {
		Path   string            `json:"path"` // from the root
		Before checkpoints.State `json:"before"`
		After  checkpoints.State `json:"after"`
	}
	turnLine struct {
		Type    string `json:"type"` // turn: of a session whose root overlaps this one, or that tracks nothing
		Session string `json:"session"`
		Begin   bool   `json:"begin,omitempty"`
	}
	releaseLine struct {
		Type    string `json:"type"` // release
		Session string `json:"session"`
		Below   uint64 `json:"below"` // the session needs no capture before this one
		Gone    bool   `json:"gone,omitempty"`
	}
)

var (
	errDamaged = errors.New("the capture journal is damaged")
	// ErrNewer is a capture journal of a newer oinod: it is left untouched.
	ErrNewer = errors.New("the capture journal was written by a newer oinod; use that one")
)

func encodeLine(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // of our own types, which always can be
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// decodeLine returns a pointer to one of the types above.
func decodeLine(object []byte) (any, error) {
	var v any
	name, _, _ := bytes.Cut(bytes.TrimPrefix(object, []byte(`{"type":"`)), []byte(`"`))
	switch string(name) {
	case "tree":
		v = &headLine{}
	case "base", "part":
		if p, ok := decodePart(object); ok {
			return p, nil
		}
		v = &partLine{}
	case "capture":
		v = &captureLine{}
	case "rules":
		v = &rulesJSON{}
	case "claim":
		v = &claimLine{}
	case "turn":
		v = &turnLine{}
	case "release":
		v = &releaseLine{}
	default:
		return nil, fmt.Errorf("%w: a line of type %q", errDamaged, name)
	}
	if err := json.Unmarshal(object, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return v, nil
}

// decodePart reads a part as encodeLine writes it. Nearly all of a journal is
// parts, and reading them as any JSON takes five times as long.
func decodePart(object []byte) (*partLine, bool) {
	p := &partLine{}
	rest, ok := bytes.CutPrefix(object, []byte(`{"type":"`))
	if !ok {
		return nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`","n":`))
	number, rest, ok2 := bytes.Cut(rest, []byte(`,"records":"`))
	encoded, ok3 := bytes.CutSuffix(rest, []byte(`"}`))
	if !ok || !ok2 || !ok3 {
		return nil, false
	}
	var err error
	if p.N, err = strconv.Atoi(string(number)); err != nil {
		return nil, false
	}
	p.Type = string(name)
	p.Records, err = base64.StdEncoding.AppendDecode(nil, encoded)
	return p, err == nil
}

// partLines puts records, in order, in lines of the type.
func partLines(kind string, records func(yield func(*record) bool)) [][]byte {
	var lines [][]byte
	var b []byte
	previous := ""
	flush := func() {
		if len(b) > 0 {
			lines = append(lines, encodeLine(partLine{kind, len(lines), b}))
			b, previous = b[:0], ""
		}
	}
	for r := range records {
		b = appendRecord(b, previous, r)
		previous = r.path
		if len(b) >= partSize {
			flush()
		}
	}
	flush()
	return lines
}

// gather collects parts until the line of their capture comes.
type gather struct {
	parts []*partLine
}

func (g *gather) part(l *partLine) error {
	if l.N == 0 {
		g.parts = nil
	}
	if l.N != len(g.parts) {
		return fmt.Errorf("%w: a part of a capture is missing", errDamaged)
	}
	g.parts = append(g.parts, l)
	return nil
}

// take passes the records of capture l on, part by part. Parts that are not
// its own are what is left of one that was not finished.
func (g *gather) take(l *captureLine, f func(*partLine) error) error {
	parts := g.parts
	g.parts = nil
	if l.Parts == 0 {
		return nil
	}
	if len(parts) != l.Parts {
		return fmt.Errorf("%w: capture %d has %d parts and not %d", errDamaged, l.Seq, len(parts), l.Parts)
	}
	for _, p := range parts {
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}

// eachRecord passes the records of a part on.
func (p *partLine) eachRecord(f func(record)) error {
	d := decoder{b: p.Records}
	for {
		r, ok, err := d.next()
		if err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if !ok {
			return nil
		}
		f(r)
	}
}
