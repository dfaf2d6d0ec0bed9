package ignore

import "strings"

// parseSet reads the set that s begins with and returns its length. ok is
// false where it has no end or an unknown class.
func parseSet(s string) (members *[256]bool, length int, ok bool) {
	members = new([256]bool)
	i := 1
	negated := i < len(s) && (s[i] == '!' || s[i] == '^')
	if negated {
		i++
	}
	low := byte(0) // the byte before, where a range can begin with it
	for first := true; ; first = false {
		if i >= len(s) {
			return nil, 0, false
		}
		c := s[i]
		switch {
		case c == ']' && !first:
			if negated {
				for b := range members {
					members[b] = !members[b]
				}
			}
			return members, i + 1, true
		case c == '-' && low != 0 && i+1 < len(s) && s[i+1] != ']':
			i++
			high := s[i]
			if high == '\\' {
				if i++; i == len(s) {
					return nil, 0, false
				}
				high = s[i]
			}
			for b := int(low); b <= int(high); b++ {
				members[b] = true
			}
			low = 0
		case c == '[' && i+1 < len(s) && s[i+1] == ':':
			name, n, found := className(s[i:])
			if n < 0 {
				return nil, 0, false
			}
			if !found {
				members[c], low = true, c
				break
			}
			in, known := classes[name]
			if !known {
				return nil, 0, false
			}
			for b := range 128 {
				members[b] = members[b] || in(byte(b))
			}
			i += n - 1
			low = 0
		default:
			if c == '\\' {
				if i++; i == len(s) {
					return nil, 0, false
				}
				c = s[i]
			}
			members[c], low = true, c
		}
		i++
	}
}

// className reads "[:name:]" at the start of s. n is -1 where the set cannot
// end; found is false where it is only a bracket and a colon.
func className(s string) (name string, n int, found bool) {
	end := strings.IndexByte(s[2:], ']')
	if end < 0 {
		return "", -1, false
	}
	name, found = strings.CutSuffix(s[2:2+end], ":")
	return name, 2 + end + 1, found
}

// classes are the named sets, of ASCII alone.
var classes = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return isAlpha(c) || isDigit(c) },
	"alpha":  isAlpha,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  isDigit,
	"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c byte) bool { return c > ' ' && c < 0x7f && !isAlpha(c) && !isDigit(c) },
	"space":  func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' },
}

func isAlpha(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
