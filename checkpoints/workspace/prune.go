package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Tree is what Prune asks about: a tracked tree that is kept.
type Tree struct {
	Key string // of its root, as of checkpoints.WorkspaceKey
	// Sessions are all that its journal still speaks of: nobody else holds a
	// capture or has a turn open in it. They are what could be read.
	Sessions []string
}

// Prune removes the trees that nobody needs, and returns their keys. needed is
// asked first without any lock, and then again with the tree's, so that no
// session that has come meanwhile, whose log is there before its first capture,
// loses anything: it finds no tree, as if it were the first. A tree of a newer
// oinod, and one that somebody is at, stays. With dryRun nothing is removed.
func Prune(root disk.Root, dryRun bool, needed func(Tree) (bool, error)) ([]string, error) {
	dirs, err := disk.ReadDir(root, topDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the captures: %w", err)
	}
	var pruned []string
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		p := pruning{root: root, key: d.Name(), dir: topDir + "/" + d.Name(), needed: needed}
		gone, err := p.unneeded()
		if err == nil && gone && !dryRun {
			gone, err = p.remove()
		}
		if err != nil {
			return pruned, fmt.Errorf("pruning the captures in %s: %w", p.dir, err)
		}
		if gone {
			pruned = append(pruned, p.key)
		}
	}
	if len(pruned) > 0 && !dryRun {
		err = root.SyncDir(topDir)
	}
	return pruned, err
}

type pruning struct {
	root     disk.Root
	key, dir string
	needed   func(Tree) (bool, error)
}

// unneeded asks about the tree as it is now.
func (p *pruning) unneeded() (bool, error) {
	gen, _, err := newest(p.root, p.dir)
	if missingFile(err) {
		return false, nil // another process prunes it
	}
	if err != nil {
		return false, err
	}
	t := Tree{Key: p.key}
	if gen > 0 {
		t.Sessions, err = sessionsIn(p.root, journalName(p.dir, gen))
		if missingFile(err) || errors.Is(err, ErrNewer) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	needed, err := p.needed(t)
	return !needed, err
}

// remove removes the tree, if it is still not needed once its lock is had.
func (p *pruning) remove() (bool, error) {
	unlock, err := tryLockFile(p.root, p.dir+"/"+lockName)
	if err != nil || unlock == nil {
		return false, err
	}
	gone, err := p.unneeded()
	if err == nil && gone {
		err = p.empty()
	}
	// Whoever waits for the lock finds its name gone, and makes another.
	if err = errors.Join(err, unlock(gone && err == nil)); err != nil || !gone {
		return false, err
	}
	// Somebody may have made it anew by now: then it is not empty.
	_ = p.root.Remove(p.dir)
	return true, nil
}

// empty removes all but the lock, the journal in force last: what a crash
// leaves is a whole tree, or none.
func (p *pruning) empty() error {
	files, err := disk.ReadDir(p.root, p.dir)
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b fs.DirEntry) int {
		x, _ := generation(a.Name())
		y, _ := generation(b.Name())
		return int(min(x, 1<<30)) - int(min(y, 1<<30))
	})
	for _, f := range files {
		if f.Name() == lockName {
			continue
		}
		if err := p.root.Remove(p.dir + "/" + f.Name()); err != nil {
			return err
		}
	}
	return p.root.SyncDir(p.dir)
}

// sessionsIn are the sessions that a journal speaks of. Of a damaged one it is
// those that can be read: it is of no use to any.
func sessionsIn(root disk.Root, name string) ([]string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := map[string]bool{}
	_, err = journal.Scan(f, maxLine, func(l journal.Line) error {
		if l.Err != nil || bytes.HasPrefix(l.Object, []byte(`{"type":"base"`)) || bytes.HasPrefix(l.Object, []byte(`{"type":"part"`)) {
			return nil
		}
		line, err := decodeLine(l.Object)
		if err != nil {
			return nil
		}
		switch line := line.(type) {
		case *headLine:
			if line.Version > formatVersion {
				return ErrNewer
			}
			for session := range line.Holds {
				in[session] = true
			}
			for session := range line.Turns {
				in[session] = true
			}
		case *captureLine:
			in[line.Session] = true
		case *turnLine:
			in[line.Session] = true
		}
		return nil
	})
	var all []string
	for session := range in {
		all = append(all, session)
	}
	return all, err
}
