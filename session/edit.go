package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// Edit captures path and applies edits to it, all or none.
func (s *Session) Edit(ctx context.Context, path string, edits []Replacement) (EditResult, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return EditResult{}, err
	}
	defer end()
	var res EditResult
	w, err := s.write(path, func(name string) ([]byte, *blobs.Digest, error) {
		old, err := s.ws.Read(name, s.reg.limits.MaxMessageBytes)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, &checkpoints.PathError{Path: name, Kind: "bad_path", Msg: "there is no such file to edit; _oino/write makes one"}
		}
		if err != nil {
			return nil, nil, writeError(name, err)
		}
		data, n, err := replace(name, old, edits)
		res.Replacements = n
		return data, new(blobs.Digest(sha256.Sum256(old))), err
	})
	res.EntryID = w.EntryID
	return res, err
}

// replace applies edits to old. Each old text is matched against the original
// bytes: exactly once, or everywhere with All. Matches that overlap are
// ambiguous: the outcome would depend on an order that nobody gave.
func replace(name string, old []byte, edits []Replacement) (data []byte, n int, err error) {
	type match struct{ from, to, edit int }
	var matches []match
	for i, e := range edits {
		if e.OldText == "" {
			return nil, 0, refuse(EditNoMatch, "edits[%d] has an empty oldText; name the text to replace in %s", i, name)
		}
		count := 0
		for at := 0; ; {
			j := bytes.Index(old[at:], []byte(e.OldText))
			if j < 0 {
				break
			}
			from := at + j
			if count++; count > 1 && !e.All {
				return nil, 0, refuse(EditAmbiguous, "the oldText of edits[%d] is in %s more than once; give more of what is around it, or set replaceAll", i, name)
			}
			matches = append(matches, match{from, from + len(e.OldText), i})
			if e.All {
				at = from + len(e.OldText)
			} else {
				at = from + 1 // an overlapping second match is ambiguous as well
			}
		}
		if count == 0 {
			return nil, 0, refuse(EditNoMatch, "the oldText of edits[%d] is not in %s", i, name)
		}
	}
	slices.SortFunc(matches, func(a, b match) int { return cmp.Compare(a.from, b.from) })
	at := 0
	for i, m := range matches {
		if i > 0 && m.from < matches[i-1].to {
			return nil, 0, refuse(EditAmbiguous, "edits[%d] and edits[%d] overlap in %s", matches[i-1].edit, m.edit, name)
		}
		data = append(data, old[at:m.from]...)
		data = append(data, edits[m.edit].NewText...)
		at = m.to
	}
	return append(data, old[at:]...), len(matches), nil
}
