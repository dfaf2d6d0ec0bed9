package workspace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// op is what a record tells of a path.
type op uint8

const (
	base    op = iota + 1 // it was known when the journal begins
	came                  // it is known from now on; what it was before follows from the captures before
	changed               // it was before and is after
	restat                // its stat is another, it itself is not
	gone                  // it was before and is absent
	noOp                  // ends the numbers
)

// record is what one capture found out about one path.
type record struct {
	op     op
	path   string            // slash-separated, from the root
	before checkpoints.State // of changed and gone
	after  checkpoints.State // of all but gone and restat
	stat   stat              // of all but gone
	racy   bool
	seen   uint32 // not in the journal
}

// set makes e what the record says.
func (r *record) set(e *entry) {
	if r.op != restat {
		e.state = r.after
	}
	e.stat, e.racy, e.seen = r.stat, r.racy, r.seen
}

// compareRecords orders records by directory, then name, so that a
// directory's lie together.
func compareRecords(a, b record) int {
	ad, an := split(a.path)
	bd, bn := split(b.path)
	if c := strings.Compare(ad, bd); c != 0 {
		return c
	}
	return cmp.Compare(an, bn)
}

// eachOf passes records on without copying them.
func eachOf(rs []record) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for i := range rs {
			if !yield(&rs[i]) {
				return
			}
		}
	}
}

func sortRecords(rs []record) { slices.SortFunc(rs, compareRecords) }

// Records in bytes: numbers are varints, a path is what it shares with the one
// before and the rest.
//
//	op 1 | shared, length, rest of the path | before | after | stat
//	state: kind 1 | reason 1 where uncovered | mode | size | 0, or 1 and the digest 32, or 2 and the stamp | length, target
//	stat:  kind 1 | racy 1 | mode | size | mtime | ctime | ino

var reasons = [...]checkpoints.Reason{"", checkpoints.TooLarge, checkpoints.NotRegular, checkpoints.Unreadable, checkpoints.Excluded, checkpoints.Budget, checkpoints.BadName}

func appendState(b []byte, s checkpoints.State) []byte {
	b = append(b, byte(s.Kind))
	if s.Kind == checkpoints.Uncovered {
		b = append(b, byte(slices.Index(reasons[:], s.Reason)))
	}
	b = binary.AppendUvarint(b, uint64(s.Mode))
	b = binary.AppendUvarint(b, uint64(s.Size))
	switch {
	case s.Digest != (blobs.Digest{}):
		b = append(append(b, 1), s.Digest[:]...)
	case s.Stamp != 0:
		b = binary.AppendUvarint(append(b, 2), s.Stamp)
	default:
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Target)))
	return append(b, s.Target...)
}

func appendStat(b []byte, s stat, racy bool) []byte {
	b = append(b, byte(s.kind), 0)
	if racy {
		b[len(b)-1] = 1
	}
	b = binary.AppendUvarint(b, uint64(s.mode))
	b = binary.AppendUvarint(b, uint64(s.size))
	b = binary.AppendVarint(b, s.mtime)
	b = binary.AppendVarint(b, s.ctime)
	return binary.AppendUvarint(b, s.ino)
}

// appendRecord appends r, whose path follows previous.
func appendRecord(b []byte, previous string, r *record) []byte {
	shared := 0
	for shared < len(previous) && shared < len(r.path) && previous[shared] == r.path[shared] {
		shared++
	}
	b = append(b, byte(r.op))
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(r.path)-shared))
	b = append(b, r.path[shared:]...)
	if r.op == changed || r.op == gone {
		b = appendState(b, r.before)
	}
	if r.op != gone && r.op != restat {
		b = appendState(b, r.after)
	}
	if r.op != gone {
		b = appendStat(b, r.stat, r.racy)
	}
	return b
}

var errRecord = errors.New("a record of the capture journal cannot be read")

// decoder reads what the functions above wrote. After an error it reads zeros.
type decoder struct {
	b    []byte
	fail bool
	path []byte // of the last record
}

func (d *decoder) byte(below int) byte {
	if len(d.b) == 0 || int(d.b[0]) >= below {
		d.fail, d.b = true, nil
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) state() checkpoints.State {
	s := checkpoints.State{Kind: checkpoints.Kind(d.byte(int(checkpoints.Uncovered) + 1))}
	if s.Kind == checkpoints.Uncovered {
		s.Reason = reasons[d.byte(len(reasons))]
	}
	s.Mode, s.Size = uint32(d.uint()), int64(d.uint())
	switch d.byte(3) {
	case 1:
		copy(s.Digest[:], d.bytes(uint64(len(s.Digest))))
	case 2:
		s.Stamp = d.uint()
	}
	s.Target = string(d.bytes(d.uint()))
	return s
}

func (d *decoder) stat() (s stat, racy bool) {
	s.kind = kind(d.byte(int(special) + 1))
	racy = d.byte(2) == 1
	s.mode, s.size = uint32(d.uint()), int64(d.uint())
	s.mtime, s.ctime, s.ino = d.int(), d.int(), d.uint()
	return s, racy
}

// next returns the next record; ok is false at the end.
func (d *decoder) next() (r record, ok bool, err error) {
	if len(d.b) == 0 && !d.fail {
		return r, false, nil
	}
	r.op = op(d.byte(int(noOp)))
	shared := d.uint()
	rest := d.bytes(d.uint())
	if d.fail || r.op == 0 || shared > uint64(len(d.path)) {
		return r, false, errRecord
	}
	d.path = append(d.path[:shared], rest...)
	r.path = string(d.path)
	if r.op == changed || r.op == gone {
		r.before = d.state()
	}
	if r.op != gone && r.op != restat {
		r.after = d.state()
	}
	if r.op != gone {
		r.stat, r.racy = d.stat()
	}
	if d.fail {
		return r, false, errRecord
	}
	return r, true, nil
}
