package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// prune removes the captures of workspaces that no session refers to any more.
// A session makes its log before it captures, and notes new directories in it
// before it captures those; so what the logs say while nobody can capture is
// all there is.
func (c *collection) prune(ctx context.Context, dryRun bool) ([]string, error) {
	known, err := c.references(ctx)
	if err != nil {
		return nil, err
	}
	asked := map[string]bool{}
	return workspace.Prune(c.root, dryRun, func(t workspace.Tree) (bool, error) {
		if known.to(t) || !asked[t.Key] {
			asked[t.Key] = true
			return known.to(t), nil
		}
		now, err := c.references(ctx) // the tree is locked by now
		return err != nil || now.to(t), err
	})
}

// references are what sessions refer to.
type references struct {
	sessions map[string]bool // that there are, by id: whether they track anything
	keys     map[string]bool // of directories that they track
}

// to reports whether a session refers to a tree: it tracks its root, or did
// when that was spelled in another way.
func (r references) to(t workspace.Tree) bool {
	return r.keys[t.Key] || slices.ContainsFunc(t.Sessions, func(id string) bool { return r.sessions[id] })
}

func (c *collection) references(ctx context.Context) (references, error) {
	r := references{map[string]bool{}, map[string]bool{}}
	leaving := map[string]bool{} // of a dry run
	for _, i := range c.old {
		leaving[i.SessionID] = true
	}
	dirs := map[string]bool{} // many sessions have the same
	for range 2 {             // so that no log is missed on its way from form to form
		files, err := logFiles(c.root)
		if err != nil {
			return r, err
		}
		for _, f := range files {
			id := f.place.id()
			if _, known := r.sessions[id]; leaving[id] || f.staged == "" && known {
				continue
			}
			if err := ctx.Err(); err != nil {
				return r, err
			}
			tracks, err := c.tracks(f)
			if errors.Is(err, fs.ErrNotExist) || noSession(err) {
				continue // it was deleted, or is no log
			}
			if err != nil {
				return r, err
			}
			r.sessions[id] = len(tracks) > 0
			for _, dir := range tracks {
				dirs[dir] = true
			}
		}
	}
	for dir := range dirs {
		r.keys[checkpoints.WorkspaceKey(dir)] = true
	}
	return r, nil
}

// tracks are the directories that the session of a log tracks, as the log says
// now: those that were found when it was marked, unless it has grown since.
func (c *collection) tracks(f logFile) ([]string, error) {
	info, err := f.info(c.root)
	if err != nil {
		return nil, err
	}
	if was, ok := c.marked[f.key()]; ok && os.SameFile(info, was.info) && info.Size() == was.info.Size() {
		return was.tracks, nil
	}
	s, err := f.read(c.root)
	if err != nil {
		return nil, err
	}
	return s.state.tracks(), nil
}

// tracks are the directories that a session tracks, or has tracked: their
// captures may still be held for it.
func (st *state) tracks() []string {
	if st.head.Tracking != Workspace {
		return nil
	}
	return slices.Concat([]string{st.head.Cwd}, st.dirs, st.left)
}
