package workspace

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

const (
	journalPrefix = "captures-"
	journalSuffix = ".jsonl"
	damagedName   = "damaged"
)

// makeDir makes the tree's directory.
func (t *tree) makeDir() error {
	if t.made {
		return nil
	}
	if err := disk.MkdirAll(t.store.root, t.dir, 0o700); err != nil {
		return err
	}
	t.made = true
	return nil
}

// generation is the number in a journal's name; ok is false for another file.
func generation(name string) (gen uint64, ok bool) {
	name, ok = strings.CutPrefix(name, journalPrefix)
	if !ok {
		return 0, false
	}
	if name, ok = strings.CutSuffix(name, journalSuffix); !ok {
		return 0, false
	}
	gen, err := strconv.ParseUint(name, 10, 64)
	return gen, err == nil
}

func (t *tree) journalName(gen uint64) string { return journalName(t.dir, gen) }

func journalName(dir string, gen uint64) string {
	return fmt.Sprintf("%s/%s%d%s", dir, journalPrefix, gen, journalSuffix)
}

// newest is the journal in force: a compaction makes another with the next
// number, whole, and only then removes the one before.
func newest(root disk.Root, dir string) (gen uint64, older []uint64, err error) {
	entries, err := disk.ReadDir(root, dir)
	if err != nil {
		return 0, nil, err
	}
	for _, e := range entries {
		if g, ok := generation(e.Name()); ok {
			older = append(older, g)
		}
	}
	if len(older) == 0 {
		return 0, nil, nil
	}
	slices.Sort(older)
	return older[len(older)-1], older[:len(older)-1], nil
}

// refresh reads what is new in the journal since it was read last. What is
// damaged is set aside: the tree begins anew, and captures that were promised
// are gone, which the next capture tells. The caller has the lock.
func (t *tree) refresh() error {
	gen, older, err := newest(t.store.root, t.dir)
	if err != nil {
		return t.error("listing", err)
	}
	for _, g := range older { // a compaction was cut off behind its last step but one
		_ = t.store.root.Remove(t.journalName(g))
	}
	if gen != t.gen {
		t.reset()
		t.gen = gen
	}
	if gen == 0 {
		return nil
	}
	t.file = t.journalName(gen)
	if t.writer != nil {
		info, err := t.store.root.Lstat(t.file)
		if err == nil && info.Size() == t.end && t.writer.Broken() == nil {
			return nil
		}
		t.writer.Close()
		t.writer = nil
	}
	w, err := journal.OpenWriter(t.store.root, t.file, maxLine, t.fold)
	if errors.Is(err, errOther) {
		t.reset()
		t.gen, t.file = gen, t.journalName(gen)
		w, err = journal.OpenWriter(t.store.root, t.file, maxLine, t.fold)
	}
	switch {
	case errors.Is(err, errDamaged):
		return t.setAside(err)
	case err != nil:
		t.reset()
		return t.error("opening", err)
	case t.end == 0:
		w.Close()
		return t.setAside(fmt.Errorf("%w: it is empty", errDamaged))
	}
	t.writer = w
	return nil
}

// setAside moves a damaged journal out of the way. It is kept, one of them,
// for whoever wants to know.
func (t *tree) setAside(why error) error {
	name := t.file
	t.reset()
	t.queued = nil // of captures that are gone
	if err := t.store.root.Rename(name, t.dir+"/"+damagedName); err != nil {
		return t.error("setting aside", errors.Join(why, err))
	}
	if err := t.store.root.SyncDir(t.dir); err != nil {
		return t.error("setting aside", err)
	}
	t.lost = why.Error()
	return nil
}

// append makes lines durable and folds them; records are those that the parts
// among them hold. Without a journal they begin one.
func (t *tree) append(lines [][]byte, records []record) error {
	all := append(slices.Clone(t.queued), lines...)
	if t.writer == nil {
		return t.create(headLine{}, all, records)
	}
	if len(all) == 0 {
		return nil
	}
	places, err := t.writer.Append(all...)
	if err != nil {
		// What was written of it, if anything, is not folded. Whoever is next
		// reads the file anew.
		t.reset()
		return t.error("writing", err)
	}
	t.queued = nil
	return t.foldOwn(all, places, records)
}

// create makes a journal with the next number and folds it.
func (t *tree) create(h headLine, lines [][]byte, records []record) error {
	if h.ID == "" {
		id := make([]byte, 8)
		rand.Read(id) // which never fails
		h.ID = hex.EncodeToString(id)
	}
	h.Type, h.Version, h.Root, h.CreatedAt = "tree", formatVersion, t.root, t.store.now().UnixMilli()
	all := append([][]byte{encodeLine(h)}, lines...)
	gen, name := t.gen+1, t.journalName(t.gen+1)
	w, err := journal.Create(t.store.root, name, all...)
	if err != nil {
		t.reset()
		return t.error("beginning", err)
	}
	places := make([]journal.Pos, len(all))
	offset := int64(0)
	for i, line := range all {
		encoded, err := journal.Encode(nil, line)
		if err != nil {
			return t.error("beginning", err)
		}
		places[i] = journal.Pos{Offset: offset, Length: len(encoded) - 1}
		offset += int64(len(encoded))
	}
	table, walk, rules, held := t.table, t.walk, t.walkRules, t.walkHeld
	t.reset()
	t.table, t.walk, t.walkRules, t.walkHeld = table, walk, rules, held
	t.writer, t.file, t.gen, t.queued = w, name, gen, nil
	return t.foldOwn(all, places, records)
}

// foldOwn folds lines that this process has just written. What their records
// say it knows without reading them again; the table has the base already.
func (t *tree) foldOwn(lines [][]byte, places []journal.Pos, records []record) error {
	t.own = true
	defer func() { t.own = false }()
	for i, line := range lines {
		if bytes.HasPrefix(line, []byte(`{"type":"base"`)) || bytes.HasPrefix(line, []byte(`{"type":"part"`)) {
			t.end = places[i].Offset + int64(places[i].Length) + 1
			continue
		}
		if err := t.fold(journal.Line{Pos: places[i], Object: line}); err != nil {
			t.reset()
			return t.error("writing", err)
		}
	}
	t.table.apply(records)
	return nil
}

// scan passes the lines between two offsets of the journal on.
func (t *tree) scan(from, to int64, f func(line any, pos journal.Pos) error) error {
	file, err := t.store.root.OpenFile(t.file, os.O_RDONLY, 0)
	if err != nil {
		return t.error("reading", err)
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return t.error("reading", err)
	}
	_, err = journal.Scan(io.LimitReader(file, to-from), maxLine, func(l journal.Line) error {
		if l.Err != nil {
			return fmt.Errorf("%w: %w", errDamaged, l.Err)
		}
		line, err := decodeLine(l.Object)
		if err != nil {
			return err
		}
		l.Pos.Offset += from
		return f(line, l.Pos)
	})
	if err != nil {
		return t.error("reading", err)
	}
	return nil
}
