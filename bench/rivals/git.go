package rivals

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Git is a repository that git commands run in, with nothing of the user's
// configuration.
type Git struct {
	Tree string   // the work tree
	Dir  string   // the repository; "": .git in the tree
	Env  []string // the environment, without any GIT_*
}

// Version runs the shortest of all git commands.
func (g Git) Version() error { return g.run(nil, "--version") }

// Init makes the repository.
func (g Git) Init() error { return g.run(nil, "init", "--quiet", g.Tree) }

// AddAll stages everything.
func (g Git) AddAll() error { return g.run(nil, "add", "-A") }

// Commit commits what is staged.
func (g Git) Commit() error { return g.run(nil, "commit", "--quiet", "-m", "all") }

// Status asks what has changed.
func (g Git) Status() error { return g.run(nil, "status", "--porcelain") }

// Checkpoint keeps the whole tree as tools usually do with git: in an index of
// their own, as a commit under a ref of their own. The user's index stays.
func (g Git) Checkpoint(ref string) error {
	index := filepath.Join(g.repository(), "checkpoint-index")
	if err := os.RemoveAll(index); err != nil {
		return err
	}
	env := []string{"GIT_INDEX_FILE=" + index}
	for _, args := range [][]string{{"read-tree", "HEAD"}, {"add", "-A"}} {
		if err := g.run(env, args...); err != nil {
			return err
		}
	}
	tree, err := g.output(env, "write-tree")
	if err != nil {
		return err
	}
	commit, err := g.output(env, "commit-tree", "-p", "HEAD", "-m", "checkpoint", tree)
	if err != nil {
		return err
	}
	return g.run(env, "update-ref", "refs/checkpoints/"+ref, commit)
}

func (g Git) repository() string {
	if g.Dir != "" {
		return g.Dir
	}
	return filepath.Join(g.Tree, ".git")
}

func (g Git) run(env []string, args ...string) error {
	_, err := g.output(env, args...)
	return err
}

func (g Git) output(env []string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = g.Tree
	cmd.Env = append(append([]string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_OPTIONAL_LOCKS=1",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.com",
		"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.com",
	}, g.Env...), env...)
	if g.Dir != "" {
		cmd.Env = append(cmd.Env, "GIT_DIR="+g.Dir, "GIT_WORK_TREE="+g.Tree)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}
