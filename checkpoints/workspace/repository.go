package workspace

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maxRulesFile bounds what is read of one file of ignore lines.
const maxRulesFile = 4 << 20

// isGit reports whether a name is .git in any spelling that some file system
// takes for it. Nothing of that name is walked, whatever it is.
func isGit(name string) bool {
	if len(name) < len(".git") || name[0] != '.' && name[0] != 'g' && name[0] != 'G' && name[0] < 0x80 {
		return false
	}
	switch runtime.GOOS {
	case "windows": // drops dots and spaces at the end, and has short names
		name, _, _ = strings.Cut(strings.TrimRight(name, ". "), ":")
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

// repositoryAt reports whether the directory dir is the top of a repository,
// as git sees it: .git is a directory that holds one, or a file that leads to
// one (a linked worktree, a submodule). exclude is the content of its
// info/exclude. Nothing is written, and nothing of git's configuration read.
func repositoryAt(dir string) (exclude []byte, ok bool) {
	gitDir := filepath.Join(dir, ".git")
	info, err := os.Stat(gitDir)
	if err != nil {
		return nil, false
	}
	if !info.IsDir() {
		pointer, err := readRegular(gitDir)
		target, found := bytes.CutPrefix(pointer, []byte("gitdir: "))
		if err != nil || !found {
			return nil, false
		}
		gitDir = relativeTo(dir, string(bytes.TrimRight(target, "\r\n")))
	}
	common := gitDir
	if name, err := readRegular(filepath.Join(gitDir, "commondir")); err == nil {
		common = relativeTo(gitDir, string(bytes.TrimRight(name, "\r\n")))
	}
	if _, err := os.Lstat(filepath.Join(gitDir, "HEAD")); err != nil || !isDirectory(filepath.Join(common, "objects")) || !isDirectory(filepath.Join(common, "refs")) {
		return nil, false
	}
	exclude, _ = readRegular(filepath.Join(common, "info", "exclude"))
	return exclude, true
}

func relativeTo(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// readRegular reads a file of at most maxRulesFile bytes.
func readRegular(name string) ([]byte, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errKind)
	}
	return io.ReadAll(io.LimitReader(f, maxRulesFile))
}

// above is what lies over a root that is inside a repository: the directories
// from the repository's top down to the root's parent, outermost first.
type above struct {
	prefix  string // of the root in the repository, with a slash behind; "" for none
	sources []source
}

// lookAbove finds the repository that root lies in without being its top. A
// root that the repository ignores was chosen all the same: it is on its own,
// or a project below a home directory whose repository ignores "*" would be
// covered in name only.
func lookAbove(root string) above {
	if _, ok := repositoryAt(root); ok {
		return above{}
	}
	var names []string // below the top, innermost first
	for at := root; ; {
		parent := filepath.Dir(at)
		if parent == at {
			return above{}
		}
		names = append(names, filepath.Base(at))
		at = parent
		exclude, ok := repositoryAt(at)
		if !ok {
			continue
		}
		a := above{}
		for i := len(names) - 1; i >= 0; i-- {
			s := source{dir: a.prefix, lines: ignoreFileIn(at)}
			if a.prefix == "" {
				s.top, s.exclude = true, exclude
			}
			if s.top || s.lines != nil {
				a.sources = append(a.sources, s)
			}
			a.prefix += names[i] + "/"
			at = filepath.Join(at, names[i])
		}
		if !newRules("", nil, nil, slices.Clone(a.sources)).lookup().covers(strings.TrimSuffix(a.prefix, "/"), true) {
			return above{}
		}
		return a
	}
}

// ignoreFileIn reads dir's .gitignore. One that is a link says nothing, as git has it.
func ignoreFileIn(dir string) []byte {
	name := filepath.Join(dir, ignoreName)
	info, err := os.Lstat(name)
	if err != nil || info.Mode()&fs.ModeType != 0 {
		return nil
	}
	content, _ := readRegular(name)
	return content
}
