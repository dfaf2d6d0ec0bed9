package ignore

import "strings"

// pattern is one line.
type pattern struct {
	negated bool
	dirOnly bool
	byName  bool    // it has no slash: compared to the last name of a path alone
	source  string  // without the marks that the fields above tell
	literal string  // the bytes before the first special one
	rest    []token // what follows them; nil where nothing does
	suffix  string  // of "*suffix" with nothing else special, by name: an end is enough
	never   bool    // it cannot match
}

// special are the bytes that do not stand for themselves.
const special = `*?[\`

// parse reads a line without its end; ok is false where it says nothing.
func parse(line string) (p pattern, ok bool) {
	if line == "" || line[0] == '#' {
		return p, false
	}
	line, _, _ = strings.Cut(line, "\x00") // where git, a C program, sees the line end
	line = trimSpaces(line)
	if strings.HasPrefix(line, "!") {
		p.negated, line = true, line[1:]
	}
	// How long the literal start is, git asks before it takes the slash off.
	if strings.HasSuffix(line, "/") {
		p.dirOnly, line = true, line[:len(line)-1]
	}
	if line == "" {
		return p, false
	}
	p.byName = !strings.Contains(line, "/")
	p.source = strings.TrimPrefix(line, "/")
	if n := strings.IndexAny(p.source, special); n >= 0 {
		p.literal = p.source[:n]
		if tail := p.source[n:]; p.byName && p.literal == "" && tail[0] == '*' && len(tail) > 1 && !strings.ContainsAny(tail[1:], special) {
			p.suffix = tail[1:]
		}
		p.rest, p.never = compile(p.source[n:], p.byName)
	} else {
		p.literal = p.source
	}
	if p.source == "" {
		p.never = true // "//": an empty name
	}
	return p, true
}

// trimSpaces takes the spaces off a line's end, but for an escaped one. A line
// that ends in a lone backslash keeps them.
func trimSpaces(line string) string {
	end := 0 // of what stays
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			i++
			if i == len(line) {
				return line
			}
		}
		end = i + 1
	}
	return line[:end]
}

// matches reports whether the pattern is of, a name or a path as byName says.
func (p *pattern) matches(of string) bool {
	switch {
	case p.never:
		return false
	case p.suffix != "":
		return strings.HasSuffix(of, p.suffix)
	case p.rest == nil:
		return of == p.literal
	}
	tail, ok := strings.CutPrefix(of, p.literal)
	return ok && match(p.rest, tail)
}

// leadsInto reports whether the pattern, a path, could match below dir: its
// first names match those of dir, or "**" comes before they are through.
func (p *pattern) leadsInto(dir string) bool {
	if p.never {
		return false
	}
	names := strings.Split(p.source, "/")
	for name := range strings.SplitSeq(dir, "/") {
		if names[0] == "**" {
			return true
		}
		if q, ok := parse(`/` + names[0]); !ok || !q.matches(name) {
			return false
		}
		if names = names[1:]; len(names) == 0 {
			return true // dir itself lies below a match, or is one
		}
	}
	return true
}
