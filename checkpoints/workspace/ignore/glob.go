package ignore

import "strings"

// kind is what a token stands for.
type kind uint8

const (
	char     kind = iota // one byte, as it is
	one                  // one byte, no slash
	set                  // one byte of a set, no slash
	star                 // any bytes, no slash
	anything             // any bytes
	dirs                 // any directories, with the slash behind each; also none
)

// token is a part of a pattern behind its literal start.
type token struct {
	kind kind
	char byte
	set  *[256]bool
}

// compile reads the special part of a pattern. never: it cannot match.
func compile(s string, byName bool) (tokens []token, never bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i == len(s) {
				return nil, true // nothing to escape
			}
			tokens = append(tokens, token{kind: char, char: s[i]})
		case '?':
			tokens = append(tokens, token{kind: one})
		case '[':
			members, length, ok := parseSet(s[i:])
			if !ok {
				return nil, true
			}
			i += length - 1
			tokens = append(tokens, token{kind: set, set: members})
		case '*':
			n := len(s[i:]) - len(strings.TrimLeft(s[i:], "*"))
			after := s[i+n:]
			alone := i == 0 || s[i-1] == '/'
			switch {
			case n == 1 || byName || !alone:
				tokens = append(tokens, token{kind: star})
			case after == "" || strings.HasPrefix(after, `\/`):
				tokens = append(tokens, token{kind: anything})
			case after[0] == '/':
				tokens = append(tokens, token{kind: dirs})
				n++
			default:
				tokens = append(tokens, token{kind: star})
			}
			i += n - 1
		default:
			tokens = append(tokens, token{kind: char, char: c})
		}
	}
	return tokens, false
}

// match reports whether tokens match all of s. It goes on byte by byte, and
// where it cannot, back to the last star, letting it take one byte more, or,
// where that has come to a slash, to the last thing that may take slashes. An
// earlier one never needs to be gone back to: what follows it was found at
// the first place possible, which leaves the most to the later one.
func match(tokens []token, s string) bool {
	t, i := 0, 0
	starT, starI := -1, 0 // the token behind the last star, and where it is tried
	wideT, wideI := -1, 0 // the same of the last token that takes slashes
	wideDirs := false     // it is only tried behind slashes
	for {
		if t < len(tokens) {
			switch k := &tokens[t]; {
			case k.kind == star:
				t++
				starT, starI = t, i
				continue
			case k.kind == anything, k.kind == dirs:
				t++
				if t == len(tokens) && k.kind == anything {
					return true
				}
				wideT, wideI, wideDirs = t, i, k.kind == dirs
				starT = -1
				continue
			case i < len(s) && k.is(s[i]):
				t++
				i++
				continue
			}
		} else if i == len(s) {
			return true
		}
		switch {
		case starT >= 0 && starI < len(s) && s[starI] != '/':
			starI++
			t, i = starT, starI
		case wideT >= 0 && wideI < len(s):
			if wideDirs {
				slash := strings.IndexByte(s[wideI:], '/')
				if slash < 0 {
					return false
				}
				wideI += slash
			}
			wideI++
			t, i, starT = wideT, wideI, -1
		default:
			return false
		}
	}
}

// is reports whether a token of one byte takes c.
func (k *token) is(c byte) bool {
	switch k.kind {
	case char:
		return c == k.char
	case one:
		return c != '/'
	}
	return c != '/' && k.set[c]
}
