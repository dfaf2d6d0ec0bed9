package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// A disk that asks for permission, as it does not ask root: to change names in
// a directory takes its write bit.
func TestClosedDirectoriesAreOpenedForTheTime(t *testing.T) {
	a := tree{"d": mdir(0o555), "d/f": mfile(0o444, "v0"), "d/e": mdir(0o500), "d/e/g": file("v0"), "n": mdir(0o555), "k": mdir(0o500), "k/x": file("x")}
	b := tree{"d": mdir(0o555), "d/f": mfile(0o444, "v1"), "d/e": mdir(0o500), "d/e/g": file("v1"), "d/new": file("n"), "n": mdir(0o555), "n/m": mdir(0o555), "n/m/o": file("o"), "k": file("was closed")}
	s := newScene(t, a, b)
	// The disk in memory cannot be asked from within an operation, so the
	// modes are followed as they are set.
	modes := map[string]fs.FileMode{}
	for name, what := range b {
		if m, ok := strings.CutPrefix(what, "dir "); ok {
			var bits uint32
			fmt.Sscanf(m, "%o", &bits)
			modes[name] = fs.FileMode(bits)
		}
	}
	w := openOn(t, s.fs, s.kept)
	var refused []string
	w.roots[0].disk = permitting{w.roots[0].disk, func(dir string) error {
		if m, ok := modes[dir]; ok && m&0o300 != 0o300 {
			refused = append(refused, dir)
			return syscall.EACCES
		}
		return nil
	}, func(name string, mode fs.FileMode) { modes[name] = mode }}
	_, failed := s.rewind(t, w)
	require.Empty(t, failed)
	require.Empty(t, refused)
	require.Equal(t, a, treeOn(t, s.fs.Root("/w")))
}

// permitting is a disk that asks before names change in a directory.
type permitting struct {
	disk.Root
	ask   func(dir string) error
	chmod func(name string, mode fs.FileMode)
}

func (d permitting) may(names ...string) error {
	for _, name := range names {
		if err := d.ask(path.Dir(name)); err != nil {
			return &fs.PathError{Op: "change", Path: name, Err: err}
		}
	}
	return nil
}

func (d permitting) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := d.may(name); err != nil {
			return nil, err
		}
	}
	return d.Root.OpenFile(name, flag, perm)
}

func (d permitting) Symlink(target, name string) error {
	return errors.Join(d.may(name), d.Root.Symlink(target, name))
}

func (d permitting) Link(old, new string) error {
	if err := d.may(new); err != nil {
		return err
	}
	return d.Root.Link(old, new)
}

func (d permitting) Mkdir(name string, perm fs.FileMode) error {
	if err := d.may(name); err != nil {
		return err
	}
	err := d.Root.Mkdir(name, perm)
	if err == nil {
		d.chmod(name, perm)
	}
	return err
}

func (d permitting) Rename(old, new string) error {
	if err := d.may(old, new); err != nil {
		return err
	}
	return d.Root.Rename(old, new)
}

func (d permitting) Remove(name string) error {
	if err := d.may(name); err != nil {
		return err
	}
	return d.Root.Remove(name)
}

func (d permitting) Chmod(name string, mode fs.FileMode) error {
	err := d.Root.Chmod(name, mode)
	if err == nil {
		d.chmod(name, mode)
	}
	return err
}

func TestADirectoryThatStaysClosedIsNamed(t *testing.T) {
	a, b := tree{"d/f": file("v0"), "e": file("v0")}, tree{"d/f": file("v1"), "e": file("v1")}
	s := newScene(t, a, b)
	w := openOn(t, s.fs, s.kept)
	w.roots[0].disk = permitting{w.roots[0].disk, func(dir string) error {
		if dir == "d" {
			return syscall.EACCES
		}
		return nil
	}, func(string, fs.FileMode) {}}
	_, failed := s.rewind(t, w)
	require.Equal(t, []Failure{{Path: "/w/d/f", Code: CodeIO, Message: "its directory /w/d cannot be written in: permission denied"}}, failed)
	require.Equal(t, tree{"d/f": file("v1"), "e": file("v0")}, treeOn(t, s.fs.Root("/w")).bare())
}
