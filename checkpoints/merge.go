package checkpoints

import "bytes"

const (
	// maxMerged is the largest text that is merged.
	maxMerged = 32 << 20
	// sniffed is how much of a content tells whether it is text, as in git.
	sniffed = 8000
)

// mergeConflict says why two sides cannot be merged.
type mergeConflict string

func (c mergeConflict) Error() string { return string(c) }

// side is one of the three that are merged. content is set once it was needed,
// and where no store has it.
type side struct {
	State
	content []byte
}

// mergeParts takes the agent's part out of now: part by part, newest first, what
// the part did is undone in what is there, three-way: base is what the
// part left, theirs what it found, ours the result so far. The error is a
// mergeConflict, or read's. The content is that of a file, else nil.
func mergeParts(now State, parts []Part, read func(State) ([]byte, error)) (State, []byte, error) {
	if len(parts) == 0 {
		return State{}, nil, mergeConflict("what the agent did to it is not known")
	}
	ours := side{State: now}
	for i, p := range parts {
		base := p.After
		if base.Kind == Unknown {
			// Whatever is there counts as left by the part: what the next one
			// found, or what is there now.
			if base = now; i > 0 {
				base = parts[i-1].Before
			}
		}
		var err error
		if ours, err = merge3(side{State: base}, side{State: p.Before}, ours, read); err != nil {
			return State{}, nil, err
		}
	}
	if ours.Kind == File {
		if err := ours.load(read); err != nil {
			return State{}, nil, err
		}
	}
	return ours.State, ours.content, nil
}

func (s *side) load(read func(State) ([]byte, error)) error {
	if s.content != nil {
		return nil
	}
	content, err := read(s.State)
	if err != nil {
		return err
	}
	s.content = append([]byte{}, content...) // never nil
	return nil
}

// merge3 merges two sides that came of base: bytes with kind, and mode, each
// on its own. A side that did not change gives the other.
func merge3(base, theirs, ours side, read func(State) ([]byte, error)) (side, error) {
	base.State, theirs.State = base.comparable(), theirs.comparable()
	switch {
	case ours.Same(base.State):
		return theirs, nil
	case theirs.Same(base.State), theirs.Same(ours.State):
		return ours, nil
	}
	for _, s := range []side{base, theirs, ours} {
		switch s.Kind {
		case Absent:
			return side{}, mergeConflict("it is missing on one side")
		case Uncovered, Unknown:
			return side{}, mergeConflict("what it was in between is not known")
		}
	}
	merged, err := mergeBody(base, theirs, ours, read)
	if err != nil {
		return side{}, err
	}
	if base.Kind == theirs.Kind && base.Kind == ours.Kind {
		switch {
		case ours.Mode == base.Mode || ours.Mode == theirs.Mode:
			merged.Mode = theirs.Mode
		case theirs.Mode == base.Mode:
			merged.Mode = ours.Mode
		default:
			return side{}, mergeConflict("both changed its mode")
		}
	}
	return merged, nil
}

// mergeBody merges all but the mode.
func mergeBody(base, theirs, ours side, read func(State) ([]byte, error)) (side, error) {
	body := func(s side) State { s.Mode = 0; return s.State }
	switch {
	case body(ours) == body(base):
		return theirs, nil
	case body(theirs) == body(base), body(theirs) == body(ours):
		return ours, nil
	case base.Kind != ours.Kind || base.Kind != theirs.Kind:
		return side{}, mergeConflict("both changed it, and one to another kind")
	case base.Kind == Symlink:
		return side{}, mergeConflict("both changed where the link leads")
	}
	for _, s := range []*side{&base, &theirs, &ours} {
		if s.Size > maxMerged {
			return side{}, mergeConflict("it is too large")
		}
		if err := s.load(read); err != nil {
			return side{}, err
		}
		if binary(s.content) {
			return side{}, mergeConflict("it is not text")
		}
	}
	text, ok := mergeText(base.content, theirs.content, ours.content)
	if !ok {
		return side{}, mergeConflict("both changed the same lines")
	}
	return side{State{Kind: File, Mode: ours.Mode, Size: int64(len(text)), Digest: digestOf(text)}, text}, nil
}

// binary is git's measure of what is no text.
func binary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), sniffed)], 0) >= 0
}

// mergeText merges two texts that came of base, line by line. Outside the
// changed lines every byte stays. ok is false where both changed the same
// lines, or lines that touch, in different ways.
func mergeText(base, theirs, ours []byte) (merged []byte, ok bool) {
	b, t, o := splitLines(base), splitLines(theirs), splitLines(ours)
	inT, inO := diffLines(b, t), diffLines(b, o)
	merged = []byte{}
	at := 0 // the next line of base
	keep := func(to int) {
		for ; at < to; at++ {
			merged = append(merged, b[at]...)
		}
	}
	take := func(h hunk, lines [][]byte) {
		keep(h.aFrom)
		for _, l := range lines[h.bFrom:h.bTo] {
			merged = append(merged, l...)
		}
		at = h.aTo
	}
	for len(inT) > 0 || len(inO) > 0 {
		switch {
		case len(inO) == 0 || len(inT) > 0 && inT[0].aTo < inO[0].aFrom:
			take(inT[0], t)
			inT = inT[1:]
		case len(inT) == 0 || inO[0].aTo < inT[0].aFrom:
			take(inO[0], o)
			inO = inO[1:]
		default:
			// They overlap or touch, perhaps with more to follow: all that
			// hangs together must come to the same on both sides.
			nt, no := hanging(inT, inO)
			ht, ho := span(inT[:nt], inO[:no]), span(inO[:no], inT[:nt])
			if !bytes.Equal(bytes.Join(t[ht.bFrom:ht.bTo], nil), bytes.Join(o[ho.bFrom:ho.bTo], nil)) {
				return nil, false
			}
			take(ho, o)
			inT, inO = inT[nt:], inO[no:]
		}
	}
	keep(len(b))
	return merged, true
}

// hanging counts the first hunks of both sides that overlap or touch, each
// with one before it.
func hanging(x, y []hunk) (nx, ny int) {
	nx, ny = 1, 1
	end := max(x[0].aTo, y[0].aTo)
	for {
		switch {
		case nx < len(x) && x[nx].aFrom <= end:
			end = max(end, x[nx].aTo)
			nx++
		case ny < len(y) && y[ny].aFrom <= end:
			end = max(end, y[ny].aTo)
			ny++
		default:
			return nx, ny
		}
	}
}

// span is the hunks of one side as one, as wide in base as those of both.
func span(own, other []hunk) hunk {
	first, last := own[0], own[len(own)-1]
	from := min(first.aFrom, other[0].aFrom)
	to := max(last.aTo, other[len(other)-1].aTo)
	return hunk{from, to, first.bFrom - (first.aFrom - from), last.bTo + (to - last.aTo)}
}
