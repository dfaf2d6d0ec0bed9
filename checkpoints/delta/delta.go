// Package delta says a content as what it has in common with another, its
// base, and what it has not. It is functions on bytes and knows no file.
//
// # Format (1)
//
// Numbers are unsigned varints as in encoding/binary, shortest form.
//
//	delta:  length of the content | op…
//	op:     n<<1|0 | n bytes       insert them
//	        n<<1|1 | offset        copy n bytes of the base from there
//
// A delta that gives more or fewer bytes than it says, or copies what the base
// does not have, is damaged (ErrDamaged). It carries no sum of its own: it is
// kept under its digest, and so is its base.
//
// # How it is found
//
// The base is cut into blocks of 32 bytes, and a table knows one place of each
// block by its hash. A hash rolls over the content; where it meets a block that
// is really there, the match is drawn out to both sides and becomes a copy. So
// it finds what moved as well as what stayed, wherever the differences lie: a
// change of some bytes costs these, and up to 62 bytes around them. Time is
// linear in both, memory is the table: a quarter to a half of a byte for each
// byte of the base.
package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrDamaged is a delta that does not fit its base, or is none.
var ErrDamaged = errors.New("the delta is damaged")

const (
	block = 32         // bytes
	prime = 0x9E3779B1 // the base of the rolling hash, odd
	most  = 1 << 30    // what is looked at of a base
)

// outgoing is prime^block: what a byte weighs when it leaves the window.
const (
	prime2   = prime * prime & 0xffffffff
	prime4   = prime2 * prime2 & 0xffffffff
	prime8   = prime4 * prime4 & 0xffffffff
	prime16  = prime8 * prime8 & 0xffffffff
	outgoing = prime16 * prime16 & 0xffffffff
)

// hash is the rolling hash of the first block of b.
func hash(b []byte) uint32 {
	h := uint32(0)
	for _, c := range b[:block] {
		h = h*prime + uint32(c) + 1
	}
	return h
}

// table knows one place of each block of a base.
type table struct {
	base  []byte
	shift int
	at    []uint64 // hash<<32 | offset+1; 0 is none
}

func newTable(base []byte) table {
	n := len(base) / block
	size := max(bits.Len(uint(n)), 4) // a power of two above n
	t := table{base: base, shift: 32 - size, at: make([]uint64, 1<<size)}
	// The first of equal blocks stays, so that the copies of a repetition
	// begin where it begins.
	for off := (n - 1) * block; off >= 0; off -= block {
		h := hash(base[off:])
		t.at[t.slot(h)] = uint64(h)<<32 | uint64(off+1)
	}
	return t
}

// slot spreads a hash, whose low bits say little of early bytes.
func (t *table) slot(h uint32) uint32 { return (h * 0x85EBCA6B) >> t.shift }

// find returns how far base and content agree from a block on that begins
// content, and where in the base; 0 where there is none.
func (t *table) find(h uint32, content []byte) (off, n int) {
	at := t.at[t.slot(h)]
	if at>>32 != uint64(h) || uint32(at) == 0 {
		return 0, 0
	}
	off = int(uint32(at)) - 1
	if n = agree(t.base[off:], content); n < block {
		return 0, 0
	}
	return off, n
}

// agree counts the bytes with which a and b begin alike.
func agree(a, b []byte) int {
	n, most := 0, min(len(a), len(b))
	for most-n >= 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// Encode appends content to dst as a delta against base.
func Encode(dst, base, content []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(content)))
	t := newTable(base[:min(len(base), most)])
	done := 0 // content[:done] is said
	insert := func(end int) {
		if end > done {
			dst = binary.AppendUvarint(dst, uint64(end-done)<<1)
			dst = append(dst, content[done:end]...)
			done = end
		}
	}
	h, fresh := uint32(0), true
	for i := 0; i+block <= len(content); {
		if fresh {
			h, fresh = hash(content[i:]), false
		}
		off, n := t.find(h, content[i:])
		if n == 0 {
			if i+block < len(content) {
				h = h*prime + uint32(content[i+block]) + 1 - (uint32(content[i])+1)*outgoing
			}
			i++
			continue
		}
		start := i
		for off > 0 && start > done && base[off-1] == content[start-1] {
			off, start, n = off-1, start-1, n+1
		}
		insert(start)
		dst = binary.AppendUvarint(dst, uint64(n)<<1|1)
		dst = binary.AppendUvarint(dst, uint64(off))
		done = start + n
		i, fresh = done, true
	}
	insert(len(content))
	return dst
}

// Apply returns the content that Encode said against base, of at most limit
// bytes.
func Apply(base, delta []byte, limit int) ([]byte, error) {
	size, delta, err := number(delta)
	if err != nil {
		return nil, err
	}
	if size > uint64(limit) {
		return nil, fmt.Errorf("%w: it claims %d bytes, more than the %d allowed", ErrDamaged, size, limit)
	}
	// What it claims is believed no further than base and delta can carry.
	content := make([]byte, 0, min(int(size), len(base)+len(delta)))
	for len(delta) > 0 {
		var op uint64
		if op, delta, err = number(delta); err != nil {
			return nil, err
		}
		n := op >> 1
		if n == 0 || n > size-uint64(len(content)) {
			return nil, fmt.Errorf("%w: %d bytes more than it claims", ErrDamaged, n)
		}
		if op&1 == 0 {
			if n > uint64(len(delta)) {
				return nil, fmt.Errorf("%w: it is cut off", ErrDamaged)
			}
			content, delta = append(content, delta[:n]...), delta[n:]
			continue
		}
		var off uint64
		if off, delta, err = number(delta); err != nil {
			return nil, err
		}
		if off > uint64(len(base)) || n > uint64(len(base))-off {
			return nil, fmt.Errorf("%w: it copies what the base does not have", ErrDamaged)
		}
		content = append(content, base[off:off+n]...)
	}
	if uint64(len(content)) != size {
		return nil, fmt.Errorf("%w: %d bytes where it claims %d", ErrDamaged, len(content), size)
	}
	return content, nil
}

// number takes a number off the front of b.
func number(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 { // a longer form of the same number
		return 0, nil, fmt.Errorf("%w: no number where one was due", ErrDamaged)
	}
	return v, b[n:], nil
}
