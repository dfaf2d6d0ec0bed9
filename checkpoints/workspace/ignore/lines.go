package ignore

import (
	"bytes"
	"strings"
)

// Verdict is what lines say of a path.
type Verdict int8

const (
	None    Verdict = iota // no line matches
	Exclude                // the last line that matches excludes it
	Include                // the last line that matches takes it back
)

// Lines is the lines of one file. A nil one has none. It is never changed.
type Lines struct {
	patterns []pattern
}

// Parse reads a file's content. It refuses nothing: a line that git would not
// understand matches nothing.
func Parse(content []byte) *Lines {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	l := &Lines{}
	for line := range bytes.Lines(content) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if p, ok := parse(string(line)); ok {
			l.patterns = append(l.patterns, p)
		}
	}
	if len(l.patterns) == 0 {
		return nil
	}
	return l
}

// Match says what the lines say of rel, relative to their directory.
func (l *Lines) Match(rel string, isDir bool) Verdict {
	if l == nil {
		return None
	}
	name := rel[strings.LastIndexByte(rel, '/')+1:]
	for i := len(l.patterns) - 1; i >= 0; i-- {
		p := &l.patterns[i]
		if p.dirOnly && !isDir {
			continue
		}
		of := rel
		if p.byName {
			of = name
		}
		if !p.matches(of) {
			continue
		}
		if p.negated {
			return Include
		}
		return Exclude
	}
	return None
}

// Below reports whether a line that is bound to a path could match something
// below the directory dir. One that is only a name could anywhere, and is not
// asked.
func (l *Lines) Below(dir string) bool {
	if l == nil {
		return false
	}
	for i := range l.patterns {
		if p := &l.patterns[i]; !p.negated && !p.byName && p.leadsInto(dir) {
			return true
		}
	}
	return false
}
