package session

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// orphaned is how old a lock without a log must be: between the making of the
// two a session would find its new lock taken.
const orphaned = time.Hour

// sweepLeftovers removes what crashes left beside the logs: unfinished files,
// forks whose source is gone, locks whose log is gone. What packing leaves is
// the next packer's.
func sweepLeftovers(root disk.Root, now time.Time) error {
	dirs, err := workspaceDirs(root)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		// Before the logs: what a session makes beside its log, it makes after it.
		files, err := disk.ReadDir(root, dir)
		if err != nil {
			return err
		}
		l := leftovers{root: root, dir: dir, now: now, there: map[string]place{}}
		// Looked at twice, so that no log is missed on its way from form to form.
		for range 2 {
			places, err := logsIn(root, dir)
			if err != nil {
				return err
			}
			for _, p := range places {
				l.there[p.id()] = p
			}
		}
		for _, f := range files {
			if err := l.sweep(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

type leftovers struct {
	root  disk.Root
	dir   string
	now   time.Time
	there map[string]place // the sessions that have a log, by id
}

// sweep removes f if it is a leftover and nobody is at it.
func (l *leftovers) sweep(f fs.DirEntry) error {
	name := path.Join(l.dir, f.Name())
	base, temp := strings.CutSuffix(f.Name(), tempSuffix)
	if forked, ok := strings.CutSuffix(base, stagedSuffix); ok {
		_, parent, ok := strings.Cut(forked, ".")
		source, there := l.there[parent]
		switch {
		case !ok:
			return nil
		case !there:
			return l.root.Remove(name) // nobody can publish it
		case temp:
			return l.removeUnder(source, name)
		}
		return nil // its source sees to it when it is opened
	}
	if own, ok := strings.CutSuffix(f.Name(), lockSuffix); ok && strings.Contains(own, "_") {
		p := place{l.dir, own}
		if _, there := l.there[p.id()]; there {
			return nil
		}
		info, err := f.Info()
		if err != nil || info.ModTime().Add(orphaned).After(l.now) {
			return err
		}
		lock, err := takeLock(l.root, p)
		if err != nil {
			return nil
		}
		return lock.Remove()
	}
	if p, packed, ok := placeOf(l.dir, base); ok && temp && !packed {
		return l.removeUnder(p, name)
	}
	return nil
}

// removeUnder removes name under the lock of p, if nobody has it.
func (l *leftovers) removeUnder(p place, name string) error {
	lock, err := takeLock(l.root, p)
	if err != nil {
		return nil
	}
	return errors.Join(l.root.Remove(name), lock.Unlock())
}
