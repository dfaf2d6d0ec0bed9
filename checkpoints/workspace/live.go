package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Live calls f with every content that a capture journal of the agent
// directory names: what a collection of the blob store must leave. An error (a
// journal that is damaged, newer, or cannot be read) means that nothing may be
// collected. Trees whose keys are in without are passed over.
func Live(root disk.Root, without []string, f func(blobs.Digest)) error {
	trees, err := disk.ReadDir(root, topDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the captures: %w", err)
	}
	for _, tree := range trees {
		if !tree.IsDir() || slices.Contains(without, tree.Name()) {
			continue
		}
		dir := topDir + "/" + tree.Name()
		files, err := disk.ReadDir(root, dir)
		if missingFile(err) {
			continue // it was pruned
		}
		if err != nil {
			return fmt.Errorf("listing the captures: %w", err)
		}
		for _, file := range files {
			if _, ok := generation(file.Name()); !ok {
				continue
			}
			err := liveIn(root, dir+"/"+file.Name(), f)
			if missingFile(err) {
				// A shorter one has just taken its place: look again.
				return Live(root, without, f)
			}
			if err != nil {
				return fmt.Errorf("reading %s/%s: %w", dir, file.Name(), err)
			}
		}
	}
	return nil
}

func liveIn(root disk.Root, name string, f func(blobs.Digest)) error {
	file, err := root.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	state := func(s checkpoints.State) {
		if s.Kind == checkpoints.File {
			f(s.Digest)
		}
	}
	_, err = journal.Scan(file, maxLine, func(l journal.Line) error {
		if l.Err != nil {
			return fmt.Errorf("%w: %w", errDamaged, l.Err)
		}
		line, err := decodeLine(l.Object)
		if err != nil {
			return err
		}
		switch line := line.(type) {
		case *headLine:
			if line.Version > formatVersion {
				return ErrNewer
			}
		case *partLine:
			return line.eachRecord(func(r record) {
				state(r.before)
				state(r.after)
			})
		}
		return nil
	})
	return err
}
