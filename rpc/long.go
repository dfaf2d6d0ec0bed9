package rpc

import (
	"bytes"
	"slices"
)

// A line that is longer than the limit is never held. What can be known of it
// is at its ends: there nearly everybody puts the id and the method, before
// what is large or behind it.

const (
	// headBytes and tailBytes are how much is kept of the ends of such a line.
	headBytes = 64 << 10
	tailBytes = 4 << 10
)

// endsOf is the object that a line is, of which only the head and the tail are
// there, as far as it can be told: with the members of the head; null for the
// value of one that is cut off; and those at the end whose values are no arrays
// and no objects. A line that is no object is its head.
func endsOf(head, tail []byte) []byte {
	from := skipSpace(head, 0)
	if from == len(head) || head[from] != '{' {
		return head
	}
	end := from + 1 // of what is whole
	for _, at := range spans(head[from:]) {
		end = from + at.to
	}
	var all [][]byte
	if end > from+1 {
		all = append(all, head[from+1:end])
	}
	next := skipSpace(head, end)
	if next < len(head) && head[next] == ',' {
		next = skipSpace(head, next+1)
	}
	if next < len(head) && head[next] == '"' {
		if to := stringEnd(head, next); to > 0 {
			all = append(all, slices.Concat(head[next:to], []byte(":null")))
		}
	}
	if last := lastMembers(tail); len(last) > 0 {
		all = append(all, last)
	}
	return slices.Concat([]byte("{"), bytes.Join(all, []byte(",")), []byte("}"))
}

// lastMembers are the members at the end of an object of which b is the end, as
// far as they can be read backwards. They are no part of anything else: the last
// brace is the object's own, and in a string a quote has a backslash before it.
func lastMembers(b []byte) []byte {
	b = bytes.TrimRight(b, " \t\r\n")
	b, ok := bytes.CutSuffix(b, []byte("}"))
	if !ok {
		return nil
	}
	from := len(b)
	for to := len(b); ; {
		name := scalarStart(b, to)
		if name = spaceStart(b, name); name < 1 || b[name-1] != ':' {
			break
		}
		name = spaceStart(b, name-1)
		if name < 1 || b[name-1] != '"' {
			break
		}
		before := scalarStart(b, name)
		if before < 0 {
			break
		}
		comma := spaceStart(b, before)
		if comma < 1 || b[comma-1] != ',' {
			break
		}
		from, to = before, comma-1
	}
	return b[from:]
}

// scalarStart is where the string, number or literal begins that b[:to] ends
// with, spaces behind it or not; -1 where that cannot be told.
func scalarStart(b []byte, to int) int {
	to = spaceStart(b, to)
	if to < 1 {
		return -1
	}
	if b[to-1] != '"' {
		from := bytes.LastIndexAny(b[:to], " \t\r\n:,\"{}[]") + 1
		if from == to {
			return -1
		}
		return from
	}
	for i := to - 1; ; {
		if i = bytes.LastIndexByte(b[:i], '"'); i < 0 {
			return -1
		}
		if slashes := i - len(bytes.TrimRight(b[:i], `\`)); slashes%2 == 0 {
			return i
		}
	}
}

// spaceStart is where the spaces begin that b[:to] ends with; -1 for -1.
func spaceStart(b []byte, to int) int {
	if to < 0 {
		return -1
	}
	return len(bytes.TrimRight(b[:to], " \t\r\n"))
}
