package blobs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Collected is what Collect freed, or would have.
type Collected struct {
	Blobs int
	Bytes int64
}

// lockName is the file that holders lock together and Collect alone.
const lockName = dir + "/lock"

// Collect drops every content that live denies and rewrites segments that are
// mostly dead. It waits for nobody: ErrInUse when a holder is there. Nothing
// is changed with dryRun.
//
// live is called when nobody holds the store and nobody can until Collect
// returns (with dryRun: at any time). What a holder's log names is live from
// its sync on, before its hold ends: so the answer is right if live, when it is
// first called, has looked at every log as it is then.
func (s *Store) Collect(live func(Digest) bool, dryRun bool) (Collected, error) {
	if dryRun {
		return s.collect(live, true)
	}
	end, err := s.holds.exclude()
	if err != nil {
		return Collected{}, err
	}
	defer end()
	return s.collect(live, false)
}

func (s *Store) collect(live func(Digest) bool, dryRun bool) (freed Collected, err error) {
	if s.memory != nil {
		return s.memory.collect(live, dryRun), nil
	}
	if _, err := s.root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return Collected{}, nil
	}
	if !dryRun {
		unlock, ok, err := lockFile(s.root, lockName, false, false)
		if err != nil {
			return Collected{}, fmt.Errorf("collecting: %w", err)
		}
		if !ok {
			return Collected{}, ErrInUse
		}
		defer unlock()
	}
	c := collector{store: s, live: live}
	defer c.unlockLanes()
	if err := c.survey(); err != nil {
		return Collected{}, fmt.Errorf("collecting: %w", err)
	}
	if !dryRun && !c.idle() {
		if err := c.sweep(); err != nil {
			return Collected{}, fmt.Errorf("collecting: %w", err)
		}
	}
	return c.freed, nil
}

// collector is one Collect.
type collector struct {
	store *Store
	live  func(Digest) bool
	freed Collected

	victims []victim
	remove  []string // files of no segment: dead big contents, what crashes left
	lanes   map[int]bool
	unlocks []func() error
}

// victim is a segment that goes, with what of it stays.
type victim struct {
	seg    *segment
	live   []record
	hidden []record // live as well, but not counted on
	dead   Collected
}

func (c *collector) idle() bool { return len(c.victims) == 0 && len(c.remove) == 0 }

// survey decides what goes. It changes nothing.
func (c *collector) survey() error {
	s := c.store
	known, err := s.refresh()
	if err != nil {
		return err
	}
	bases := map[string]bool{}
	for _, seg := range known.segments {
		bases[seg.base()] = true
		if err := c.surveySegment(seg); err != nil {
			return err
		}
	}
	entries, err := disk.ReadDir(s.root, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if base, ok := strings.CutSuffix(e.Name(), indexSuffix); ok && !bases[base] {
			if _, err := s.root.Lstat(dir + "/" + base + segmentSuffix); errors.Is(err, fs.ErrNotExist) {
				c.remove = append(c.remove, name)
			}
		}
		if strings.HasSuffix(e.Name(), tempSuffix) {
			c.remove = append(c.remove, name)
		}
		var d Digest
		if hex, ok := strings.CutSuffix(e.Name(), bigSuffix); ok && d.UnmarshalText([]byte(hex)) == nil && !c.live(d) {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			c.remove = append(c.remove, name)
			c.freed.Blobs++
			c.freed.Bytes += info.Size()
		}
	}
	return nil
}

// surveySegment makes seg a victim if most of it is dead. A newer segment is
// not ours to judge. One in which there may be contents that we do not see is
// left as it is.
func (c *collector) surveySegment(seg *segment) error {
	s := c.store
	seg.mu.RLock()
	records, err := s.records(seg)
	ours := seg.newer == nil && seg.id != (segmentID{})
	seg.mu.RUnlock()
	if errors.Is(err, errIndex) || errors.Is(err, fs.ErrNotExist) {
		return nil // healed when somebody reads it
	}
	if err != nil || !ours {
		return err
	}
	v := victim{seg: seg}
	total := int64(0)
	for _, r := range records {
		length := frameHead + int64(r.place.stored)
		total += length
		if c.live(r.digest) {
			v.live = append(v.live, r)
			continue
		}
		v.dead.Blobs++
		v.dead.Bytes += length
	}
	if v.dead.Blobs == 0 || 2*v.dead.Bytes < total || !c.mayTake(seg) {
		return nil
	}
	if err := s.flushOwn(seg); err != nil {
		return err
	}
	hidden, all, err := s.remains(seg)
	if err != nil || !all {
		return err
	}
	for _, r := range hidden {
		if c.live(r.digest) {
			v.hidden = append(v.hidden, r)
		}
	}
	c.victims = append(c.victims, v)
	c.freed.Blobs += v.dead.Blobs
	c.freed.Bytes += v.dead.Bytes
	return nil
}

// flushOwn writes what waits, if seg is the own segment.
func (s *Store) flushOwn(seg *segment) error {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	if seg != s.writer.seg {
		return nil
	}
	return s.writer.flush()
}

// mayTake reports whether no other process can be adding to seg: it is sealed,
// or its lane is ours, for now.
func (c *collector) mayTake(seg *segment) bool {
	if seg.sealed.Load() || seg == c.store.own.Load() || c.lanes[seg.lane] {
		return true
	}
	unlock, ok, err := lockFile(c.store.root, fmt.Sprintf("%s/%d%s", dir, seg.lane, lockSuffix), false, false)
	if err != nil || !ok {
		return false
	}
	if c.lanes == nil {
		c.lanes = map[int]bool{}
	}
	c.lanes[seg.lane] = true
	c.unlocks = append(c.unlocks, unlock)
	return true
}

func (c *collector) unlockLanes() {
	for _, unlock := range c.unlocks {
		unlock()
	}
}

// sweep copies what stays, makes it durable, and only then drops what goes.
// After a power cut at any point there are copies too many at worst.
func (c *collector) sweep() error {
	s := c.store
	if err := s.leave(c.victims); err != nil {
		return err
	}
	gone := c.victims[:0]
	for _, v := range c.victims {
		err := c.copyLive(v)
		if errors.Is(err, ErrDamaged) {
			// What cannot be copied stays where somebody may look at it.
			c.freed.Blobs -= v.dead.Blobs
			c.freed.Bytes -= v.dead.Bytes
			continue
		}
		if err != nil {
			return err
		}
		gone = append(gone, v)
	}
	if err := s.sync(); err != nil {
		return err
	}
	// From here on, nobody may count on what was known before.
	if err := disk.Publish(s.root, generationFile, []byte(s.random(8)), 0o600); err != nil {
		return err
	}
	var errs []error
	for _, v := range gone {
		errs = append(errs, s.drop(v.seg.file()), s.drop(v.seg.indexFile()))
	}
	for _, name := range c.remove {
		errs = append(errs, s.drop(name))
	}
	errs = append(errs, s.root.SyncDir(dir))
	_, err := s.refresh()
	return errors.Join(append(errs, err)...)
}

// leave seals the own segment if it is one of the victims.
func (s *Store) leave(victims []victim) error {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	for _, v := range victims {
		if v.seg == s.writer.seg {
			return s.seal()
		}
	}
	return nil
}

// copyLive adds the frames of v that stay to the own segment, verified. A
// hidden one that is damaged may go where there is a good copy.
func (c *collector) copyLive(v victim) error {
	return c.store.files.with(v.seg.file(), func(f disk.File) error {
		for _, r := range v.live {
			if err := c.copy(f, r); err != nil {
				return err
			}
		}
		for _, r := range v.hidden {
			err := c.copy(f, r)
			if errors.Is(err, ErrDamaged) && c.store.has(r.digest) && c.store.Check(r.digest) == nil {
				continue
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// copy adds the frame at r's place in f to the own segment, verified.
func (c *collector) copy(f disk.File, r record) error {
	s := c.store
	err := s.codec.read(f, int64(r.place.off), r.place.end(), r.digest, 0, func(int64, []byte) error { return nil })
	if err != nil {
		return err
	}
	frame := make([]byte, frameHead+int(r.place.stored))
	if _, err := f.ReadAt(frame, int64(r.place.off)); err != nil {
		return err
	}
	return s.append(r.digest, frame)
}

// drop unlinks name; one that is not there is as good.
func (s *Store) drop(name string) error {
	s.files.forget(name)
	if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
