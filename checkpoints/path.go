package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is how many links one path may lead over, as in most systems.
const maxLinks = 40

// Resolve turns a path as a client spells it into the names it has here: the
// root as the client gave it and everything below it resolved. The first is
// what the path leads to when followed to its end; where that came over a
// link at the path's end, the links follow. Aliases of one thing (./a, d/../a, a link,
// the root's real path) have one name. Nothing needs to exist. The agent
// directory and anything named or below .git is outside the roots, and so is
// what a link leads out to: *PathError.
func (w *Workspace) Resolve(path string) ([]string, error) {
	if path == "" {
		return nil, &PathError{path, badPath, "the path is empty"}
	}
	if strings.ContainsRune(path, 0) {
		return nil, &PathError{path, badPath, "the path holds a NUL byte"}
	}
	if !filepath.IsAbs(path) {
		return nil, &PathError{path, badPath, "the path is not absolute"}
	}
	// A walk from the top, as the system itself would go: "d/.." is the parent
	// of what d leads to. A name that starts like a root is that root.
	walk := walk{w: w, given: path}
	if err := walk.start(path); err != nil {
		return nil, err
	}
	for len(walk.ahead) > 0 {
		if err := walk.step(); err != nil {
			return nil, err
		}
	}
	if walk.root == nil {
		return nil, walk.fail(outsideRoots, "is outside the roots of the session")
	}
	if walk.at == "." {
		return nil, walk.fail(badPath, "names the root itself")
	}
	names := []string{walk.root.path(walk.at)}
	for _, link := range walk.links {
		if !slices.Contains(names, link) {
			names = append(names, link)
		}
	}
	return names, nil
}

// walk is a Resolve on its way. Outside every root it goes by the system's
// own names; from where it enters a root, through that root alone.
type walk struct {
	w     *Workspace
	given string
	root  *root    // the root it is in, nil outside
	at    string   // the name in root, or the absolute path outside
	ahead []string // the names still to go
	links []string // links at the path's end, as resolved paths
	hops  int
}

func (k *walk) fail(kind, msg string) error { return &PathError{k.given, kind, msg} }

// start sets the walk to the absolute path, entering a root at once where the
// path begins with its name, spelled or real.
func (k *walk) start(path string) error {
	var best *root
	var length int
	for _, r := range k.w.roots {
		for _, name := range []string{r.spelled, r.real} {
			if within(name, path) && len(name) > length {
				best, length = r, len(name)
			}
		}
	}
	if best != nil {
		k.root, k.at = best, "."
		k.ahead = append(names(path[length:]), k.ahead...)
		return nil
	}
	vol := filepath.VolumeName(path)
	k.root, k.at = nil, vol+string(filepath.Separator)
	k.ahead = append(names(path[len(vol):]), k.ahead...)
	k.enter()
	return nil
}

// names splits a path; empty names and "." say nothing.
func names(path string) []string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	return slices.DeleteFunc(parts, func(s string) bool { return s == "" || s == "." })
}

// enter goes into the root whose directory the walk stands at, if any.
func (k *walk) enter() {
	for _, r := range k.w.roots {
		if k.at == r.real {
			k.root, k.at = r, "."
		}
	}
}

func (k *walk) step() error {
	name := k.ahead[0]
	k.ahead = k.ahead[1:]
	if name == ".." {
		switch {
		case k.root == nil:
			k.at = filepath.Dir(k.at)
		case k.at == ".":
			k.at, k.root = filepath.Dir(k.root.real), nil
		default:
			k.at = path.Dir(k.at)
			return nil
		}
		k.enter()
		return nil
	}
	if k.root == nil {
		return k.stepOutside(name)
	}
	rel := path.Join(k.at, name)
	if err := k.w.refuse(k.root, rel, k.given); err != nil {
		return err
	}
	d, err := k.root.current(k.w.openRoot)
	if err != nil {
		return err
	}
	fi, err := d.Lstat(rel)
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return k.fail(badPath, "a name in it is too long")
	}
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		target, err := d.Readlink(rel)
		if err != nil {
			return k.fail(badPath, fmt.Sprintf("a link in it cannot be read: %v", cause(err)))
		}
		if len(k.ahead) == 0 {
			k.links = append(k.links, k.root.path(rel))
		}
		return k.follow(target)
	}
	// What does not exist, or cannot be seen, is taken by its name: no
	// operation can leave the root through it, and Look says what it is.
	k.at = rel
	return nil
}

func (k *walk) stepOutside(name string) error {
	next := filepath.Join(k.at, name)
	if fi, err := os.Lstat(next); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(next)
		if err != nil {
			return k.fail(outsideRoots, "is outside the roots of the session")
		}
		return k.follow(target)
	}
	k.at = next
	k.enter()
	return nil
}

// follow goes on at the target of a link that stands where the walk is.
func (k *walk) follow(target string) error {
	if k.hops++; k.hops > maxLinks {
		return k.fail(badPath, "leads through too many links, or in a circle")
	}
	if filepath.IsAbs(target) {
		return k.start(target)
	}
	k.ahead = append(names(target), k.ahead...)
	return nil
}

// refuse is the error for a name in a root that oinod never touches, nil for
// any other. given is how the error names it.
func (w *Workspace) refuse(r *root, rel, given string) error {
	if r.inGit || namesGit(rel) {
		return &PathError{given, outsideRoots, "is part of a git repository's own data, which oinod never touches"}
	}
	if w.agentDir != "" && within(w.agentDir, join(r.real, rel)) {
		return &PathError{given, outsideRoots, "is in oinod's own directory"}
	}
	return nil
}

// namesGit reports whether a name in path is .git, in any spelling that some
// file system takes for it.
func namesGit(path string) bool {
	for name := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if isGit(name) {
			return true
		}
	}
	return false
}

func isGit(name string) bool {
	if len(name) < len(".git") {
		return false
	}
	switch runtime.GOOS {
	case "windows": // drops dots and spaces at the end, and has short names
		name = strings.TrimRight(name, ". ")
		name, _, _ = strings.Cut(name, ":")
		if strings.EqualFold(name, "git~1") {
			return true
		}
	case "darwin": // HFS+ does not see these
		name = strings.Map(func(c rune) rune {
			if c >= '\u200c' && c <= '\u200f' || c >= '\u202a' && c <= '\u202e' || c >= '\u206a' && c <= '\u206f' || c == '\ufeff' {
				return -1
			}
			return c
		}, name)
	}
	return strings.EqualFold(name, ".git")
}
