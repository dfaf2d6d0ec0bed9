package checkpoints

import "bytes"

// maxSearch bounds the search for the shortest way from one text to another:
// past so many differences in one stretch, the whole stretch is taken as
// changed. That is never wrong, only coarse.
const maxSearch = 4096

// hunk is a stretch of lines of a that stretch of lines of b takes the place of.
type hunk struct{ aFrom, aTo, bFrom, bTo int }

// splitLines splits text after each newline. A last line may lack one.
func splitLines(text []byte) [][]byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// diffLines are the changes that make b of a, in order; between any two of
// them is at least one line that both have. It is Myers' algorithm. Where a
// change could as well lie higher or lower, among equal lines, it lies where
// git puts it: against a change of the other text, or else as low as it can.
func diffLines(a, b [][]byte) []hunk {
	d := newLineDiff(a, b)
	d.compare(0, len(d.a), 0, len(d.b))
	changedA, changedB := d.changed()
	slide(d.allA, changedA, changedB)
	slide(d.allB, changedB, changedA)
	var hunks []hunk
	i, j := 0, 0
	for i < len(changedA) || j < len(changedB) {
		h := hunk{aFrom: i, bFrom: j}
		for i < len(changedA) && changedA[i] {
			i++
		}
		for j < len(changedB) && changedB[j] {
			j++
		}
		if h.aTo, h.bTo = i, j; h.aTo > h.aFrom || h.bTo > h.bFrom {
			hunks = append(hunks, h)
			continue
		}
		i++
		j++
	}
	return hunks
}

// lineDiff compares two texts by numbers that stand for their lines.
type lineDiff struct {
	allA, allB []int // every line
	a, b       []int // the lines that the other text has as well: only these are searched
	atA, atB   []int // where in allA and allB those are
	offA, offB []bool
	vf, vb     []int // the furthest reach on each diagonal, forward and backward
}

func newLineDiff(a, b [][]byte) *lineDiff {
	d := &lineDiff{}
	number := map[string]int{}
	count := func(lines [][]byte) []int {
		all := make([]int, len(lines))
		for i, l := range lines {
			n, ok := number[string(l)]
			if !ok {
				n = len(number)
				number[string(l)] = n
			}
			all[i] = n
		}
		return all
	}
	d.allA, d.allB = count(a), count(b)
	inA, inB := make([]bool, len(number)), make([]bool, len(number))
	for _, n := range d.allA {
		inA[n] = true
	}
	for _, n := range d.allB {
		inB[n] = true
	}
	pick := func(all []int, in []bool) (some, at []int) {
		for i, n := range all {
			if in[n] {
				some, at = append(some, n), append(at, i)
			}
		}
		return some, at
	}
	d.a, d.atA = pick(d.allA, inB)
	d.b, d.atB = pick(d.allB, inA)
	d.offA, d.offB = make([]bool, len(d.a)), make([]bool, len(d.b))
	size := 2*min(len(d.a)+len(d.b), 2*maxSearch) + 4
	d.vf, d.vb = make([]int, size), make([]int, size)
	return d
}

// changed says of every line whether it has no counterpart.
func (d *lineDiff) changed() (a, b []bool) {
	spread := func(n int, at []int, off []bool) []bool {
		changed := make([]bool, n)
		for i := range changed {
			changed[i] = true
		}
		for i, off := range off {
			changed[at[i]] = off
		}
		return changed
	}
	return spread(len(d.allA), d.atA, d.offA), spread(len(d.allB), d.atB, d.offB)
}

// compare marks the lines of a[aLo:aHi] and b[bLo:bHi] that have no
// counterpart in a longest common subsequence.
func (d *lineDiff) compare(aLo, aHi, bLo, bHi int) {
	for {
		for aLo < aHi && bLo < bHi && d.a[aLo] == d.b[bLo] {
			aLo++
			bLo++
		}
		for aLo < aHi && bLo < bHi && d.a[aHi-1] == d.b[bHi-1] {
			aHi--
			bHi--
		}
		x, y, ok := 0, 0, false
		if aLo < aHi && bLo < bHi {
			x, y, ok = d.middle(aLo, aHi, bLo, bHi)
		}
		if !ok {
			for i := aLo; i < aHi; i++ {
				d.offA[i] = true
			}
			for j := bLo; j < bHi; j++ {
				d.offB[j] = true
			}
			return
		}
		d.compare(aLo, x, bLo, y)
		aLo, bLo = x, y
	}
}

// middle finds a point that a shortest way from (aLo, bLo) to (aHi, bHi) passes,
// searching from both ends at once. It gives up when the way is too long, or
// when nothing is common.
func (d *lineDiff) middle(aLo, aHi, bLo, bHi int) (x, y int, ok bool) {
	n, m := aHi-aLo, bHi-bLo
	delta := n - m
	limit := min((n+m+1)/2, maxSearch)
	off := limit + 1 // diagonal k of the forward search is at vf[off+k]
	vf, vb := d.vf[:2*off+1], d.vb[:2*off+1]
	vf[off+1], vb[off+1] = 0, 0
	for dist := 0; dist <= limit; dist++ {
		for k := -dist; k <= dist; k += 2 {
			var i int
			if k == -dist || k != dist && vf[off+k-1] < vf[off+k+1] {
				i = vf[off+k+1]
			} else {
				i = vf[off+k-1] + 1
			}
			j := i - k
			if i > n || j > m || j < 0 {
				vf[off+k] = i
				continue
			}
			for i < n && j < m && d.a[aLo+i] == d.b[bLo+j] {
				i++
				j++
			}
			vf[off+k] = i
			// The backward search, one step behind, meets it on the same diagonal.
			if c := delta - k; delta%2 != 0 && c >= -(dist-1) && c <= dist-1 && i+vb[off+c] >= n {
				return d.point(aLo, aHi, bLo, bHi, aLo+i, bLo+j)
			}
		}
		for k := -dist; k <= dist; k += 2 {
			var i int
			if k == -dist || k != dist && vb[off+k-1] < vb[off+k+1] {
				i = vb[off+k+1]
			} else {
				i = vb[off+k-1] + 1
			}
			j := i - k
			if i > n || j > m || j < 0 {
				vb[off+k] = i
				continue
			}
			for i < n && j < m && d.a[aHi-1-i] == d.b[bHi-1-j] {
				i++
				j++
			}
			vb[off+k] = i
			if c := delta - k; delta%2 == 0 && c >= -dist && c <= dist && i+vf[off+c] >= n {
				return d.point(aLo, aHi, bLo, bHi, aHi-i, bHi-j)
			}
		}
	}
	return 0, 0, false
}

// point is a middle, unless it is no progress: then nothing is common.
func (d *lineDiff) point(aLo, aHi, bLo, bHi, x, y int) (int, int, bool) {
	if x == aLo && y == bLo || x == aHi && y == bHi {
		return 0, 0, false
	}
	return x, y, true
}

// slide moves each group of changed lines to where it lies best among equal
// lines, and joins groups that come to touch.
func slide(lines []int, changed, other []bool) {
	gaps := []bool{false} // before the n-th unchanged line of the other text: is there a change?
	for _, c := range other {
		if c {
			gaps[len(gaps)-1] = true
		} else {
			gaps = append(gaps, false)
		}
	}
	unchanged := 0 // before the group
	for from := 0; from < len(lines); from++ {
		if !changed[from] {
			unchanged++
			continue
		}
		to := from
		for to < len(lines) && changed[to] {
			to++
		}
		match := -1 // the lowest end at which the other text has a change too
		for {
			size := to - from
			for from > 0 && lines[from-1] == lines[to-1] {
				from--
				to--
				unchanged--
				changed[from], changed[to] = true, false
				for from > 0 && changed[from-1] {
					from--
				}
			}
			highest := to
			match = -1
			if gaps[unchanged] {
				match = to
			}
			for to < len(lines) && lines[from] == lines[to] {
				changed[from], changed[to] = false, true
				from++
				to++
				unchanged++
				for to < len(lines) && changed[to] {
					to++
				}
				if gaps[unchanged] {
					match = to
				}
			}
			if to-from == size {
				if highest == to {
					match = -1
				}
				break
			}
		}
		for match != -1 && to > match {
			from--
			to--
			unchanged--
			changed[from], changed[to] = true, false
		}
		from = to - 1
	}
}
