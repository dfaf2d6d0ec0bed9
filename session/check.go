package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// What Check finds.
const (
	DamagedLog  = "damaged_log"  // lines that are not what was written
	NewerLog    = "newer_log"    // written by a newer oinod: not looked at
	Unfinished  = "unfinished"   // a log whose making was cut off: of no session that anybody was told of
	NotOurs     = "not_ours"     // a file with the name of a log that oinod has not written
	TornTail    = "torn_tail"    // a last line that a crash cut off; nobody was told that it is kept
	OpenTail    = "open_tail"    // a whole last line that lacks its newline
	TwoForms    = "two_forms"    // a compressed log beside the plain one that counts
	LostBlob    = "missing_blob" // a content that a session needs
	DamagedBlob = "damaged_blob"
	NewerBlobs  = "newer_blobs" // contents written by a newer oinod: not looked at
	Unreadable  = "unreadable"  // the disk failed, or permissions
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind      string   `json:"kind"`
	SessionID string   `json:"sessionId,omitempty"`
	File      string   `json:"file,omitempty"` // below the agent directory
	Line      int      `json:"line,omitempty"`
	Digest    string   `json:"digest,omitempty"`
	NeededBy  []string `json:"neededBy,omitempty"` // of a content: sessions, at most some
	Message   string   `json:"message"`
	Repaired  bool     `json:"repaired,omitempty"`
}

// Damage reports whether something that was kept is lost. What a crash leaves
// unfinished, and what only a newer oinod can read, is not.
func (f Finding) Damage() bool {
	switch f.Kind {
	case DamagedLog, LostBlob, Unreadable:
		return true
	case DamagedBlob:
		return len(f.NeededBy) > 0
	}
	return false
}

// Checked is what Check read and found.
type Checked struct {
	Sessions int       `json:"sessions"`
	Entries  int       `json:"entries"`
	Blobs    int       `json:"blobs"`
	Bytes    int64     `json:"bytes"` // of contents
	Findings []Finding `json:"findings"`
}

// maxNeededBy is how many sessions a finding names.
const maxNeededBy = 5

// Check reads every log and every content. With repair it cuts torn tails of
// logs that nobody has open, removes compressed logs that a crash left beside
// the plain ones, and makes the caches anew. It never drops a whole record.
func (r *Registry) Check(ctx context.Context, repair bool) (Checked, error) {
	c := &checking{reg: r, repair: repair, needs: map[blobs.Digest][]int{}}
	c.Findings = []Finding{}
	root, store, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return c.Checked, nil
	}
	if err != nil {
		return c.Checked, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	c.root = root
	places, err := logPlaces(root)
	if err != nil {
		return c.Checked, storageError("the sessions cannot be listed", err)
	}
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.log(), b.log()) })
	c.places = places
	for i := range places {
		if err := ctx.Err(); err != nil {
			return c.Checked, err
		}
		c.log(i)
	}
	if err := c.contents(ctx, store); err != nil {
		return c.Checked, err
	}
	if repair {
		return c.Checked, r.rebuildCaches(ctx, root)
	}
	return c.Checked, nil
}

type checking struct {
	Checked
	reg    *Registry
	root   disk.Root
	repair bool
	places []place
	needs  map[blobs.Digest][]int // contents that sessions need: of these, some
}

func (c *checking) find(f Finding) { c.Findings = append(c.Findings, f) }

// log checks one log.
func (c *checking) log(i int) {
	p := c.places[i]
	c.twoForms(p)
	s, err := p.read(c.root, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return // deleted meanwhile
	}
	if noSession(err) {
		f := Finding{Kind: NotOurs, File: p.log(), Message: "this file is no log of oinod's, and is left alone"}
		if errors.Is(err, errUnfinished) {
			f.Kind, f.Message = Unfinished, "the making of a session was cut off here; nobody was told of it, and the file can go"
		}
		c.find(f)
		return
	}
	c.Sessions++
	if err != nil {
		f := Finding{Kind: Unreadable, SessionID: p.id(), File: p.log(), Message: err.Error()}
		if e, ok := errors.AsType[*Error](err); ok {
			switch e.Kind {
			case NewerVersion:
				f.Kind = NewerLog
			case LogDamaged:
				f.Kind, f.Line = DamagedLog, 1
			}
		}
		c.find(f)
		return
	}
	file := p.log()
	if s.packed {
		file = p.packed()
	}
	c.Entries += len(s.state.order)
	for _, d := range s.state.damage {
		c.find(Finding{Kind: DamagedLog, SessionID: p.id(), File: file, Line: d.line, Message: d.message()})
	}
	c.tail(p, s.tail)
	s.state.roots(func(d blobs.Digest, needed bool) {
		if !needed {
			return
		}
		by := c.needs[d]
		if len(by) == 0 || len(by) < maxNeededBy && by[len(by)-1] != i {
			c.needs[d] = append(by, i)
		}
	})
}

// twoForms sees whether a log is there in both forms.
func (c *checking) twoForms(p place) {
	_, plain := c.root.Lstat(p.log())
	_, packed := c.root.Lstat(p.packed())
	if plain != nil || packed != nil {
		return
	}
	f := Finding{Kind: TwoForms, SessionID: p.id(), File: p.packed(), Message: "a crash left the compressed log beside the plain one, which counts"}
	c.find(f)
	c.mend(p, func() error {
		if _, err := c.root.Lstat(p.log()); err != nil {
			return err
		}
		return errors.Join(c.root.SyncDir(p.dir), c.root.Remove(p.packed()), c.root.SyncDir(p.dir))
	})
}

// tail sees how a log ends.
func (c *checking) tail(p place, tail journal.Tail) {
	f := Finding{SessionID: p.id(), File: p.log()}
	switch {
	case tail.Torn > 0:
		f.Kind, f.Message = TornTail, fmt.Sprintf("its last %d bytes are a line that a crash cut off", tail.Torn)
	case tail.Unclosed:
		f.Kind, f.Message = OpenTail, "its last line is whole but lacks its newline"
	default:
		return
	}
	lock, err := takeLock(c.root, p)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == Locked {
		return // it is being written
	}
	if err == nil {
		err = lock.Unlock()
	}
	if err != nil {
		f.Message += "; " + err.Error()
	}
	c.find(f)
	c.mend(p, func() error {
		w, err := journal.OpenWriter(c.root, p.log(), maxLine, func(journal.Line) error { return nil })
		if err != nil {
			return err
		}
		return w.Close()
	})
}

// mend repairs what was found last, under the session's lock.
func (c *checking) mend(p place, do func() error) {
	if !c.repair {
		return
	}
	f := &c.Findings[len(c.Findings)-1]
	lock, err := takeLock(c.root, p)
	if err == nil {
		err = errors.Join(do(), lock.Unlock())
	}
	if err != nil {
		f.Message += "; it could not be repaired: " + err.Error()
		return
	}
	f.Repaired = true
}

// contents checks every content, and that what sessions need is there.
func (c *checking) contents(ctx context.Context, store *blobs.Store) error {
	good := map[blobs.Digest]bool{}
	checked, err := store.CheckAll(ctx, func(d blobs.Digest, _ int64, err error) {
		switch {
		case d == (blobs.Digest{}):
			c.find(Finding{Kind: NewerBlobs, File: "blobs", Message: err.Error()})
		case err == nil:
			good[d] = true
		case errors.Is(err, blobs.ErrMissing):
			// Collected meanwhile.
		default:
			kind := Unreadable
			if errors.Is(err, blobs.ErrDamaged) {
				kind = DamagedBlob
			}
			good[d] = true // told of here
			c.find(Finding{Kind: kind, Digest: d.String(), NeededBy: c.neededBy(d), Message: err.Error()})
		}
	})
	c.Blobs, c.Bytes = checked.Blobs, checked.Bytes
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return storageError("the kept contents cannot be read", err)
	}
	again := map[int]map[blobs.Digest]bool{} // what a session needs by now
	for d, by := range c.needs {
		if good[d] {
			continue
		}
		still := slices.DeleteFunc(slices.Clone(by), func(i int) bool {
			if again[i] == nil {
				again[i] = c.needsNow(c.places[i])
			}
			return !again[i][d]
		})
		err := store.Check(d)
		if len(still) == 0 || err == nil {
			continue // kept, or given up, since the contents were read
		}
		c.needs[d] = still
		c.find(Finding{Kind: LostBlob, Digest: d.String(), NeededBy: c.neededBy(d), Message: err.Error()})
	}
	return nil
}

// needsNow reads once more what a session needs.
func (c *checking) needsNow(p place) map[blobs.Digest]bool {
	needs := map[blobs.Digest]bool{}
	if s, err := p.read(c.root, nil); err == nil {
		s.state.roots(func(d blobs.Digest, needed bool) {
			if needed {
				needs[d] = true
			}
		})
	}
	return needs
}

func (c *checking) neededBy(d blobs.Digest) []string {
	var ids []string
	for _, i := range c.needs[d] {
		ids = append(ids, c.places[i].id())
	}
	return ids
}

// rebuildCaches makes the summaries of every directory anew.
func (r *Registry) rebuildCaches(ctx context.Context, root disk.Root) error {
	dirs, err := workspaceDirs(root)
	if err != nil {
		return storageError("the sessions cannot be listed", err)
	}
	for _, dir := range dirs {
		if err := root.Remove(path.Join(dir, summariesName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return storageError("the summaries of "+dir+" cannot be made anew", err)
		}
	}
	r.summaries.mu.Lock()
	r.summaries.dirs = nil
	r.summaries.mu.Unlock()
	_, err = r.summariesOf(ctx, "")
	return err
}
