package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints"
)

// world is a session on a small tree, with what each path was at every
// checkpoint and who changed it last. It knows nothing of intervals.
type world struct {
	t     *rapid.T
	agent string
	dir   string
	reg   *Registry
	s     *Session

	at     map[string]map[string]string // checkpoint: the tree when its message was sent
	users  map[string]int               // path: the step of the user's last change of it
	made   map[string]int               // checkpoint: the step it was made in
	turn   bool
	step   int
	before []moment // before the rewinds that can be redone
}

// moment is the tree and what the checkpoints stood for.
type moment struct {
	tree map[string]string
	at   map[string]map[string]string
}

var modelPaths = []string{"a", "b", "d/e", "d/f", "g/h/i"}

func (w *world) ctx() context.Context { return context.Background() }

func (w *world) open() {
	reg, err := OpenRegistry(Options{Dir: w.agent, Limits: Limits{MaxCheckpoints: 6, MaxSnapshotBytes: 1 << 20, MaxMessageBytes: 1 << 20}})
	require.NoError(w.t, err)
	w.reg = reg
}

func (w *world) tree() map[string]string {
	tree := map[string]string{}
	for _, p := range append(modelPaths, "user/only") {
		b, err := os.ReadFile(filepath.Join(w.dir, p))
		if err == nil {
			tree[p] = string(b)
		}
	}
	return tree
}

// dirs are the directories there are.
func (w *world) dirs() (dirs []string) {
	require.NoError(w.t, filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	}))
	return dirs
}

// change is what somebody does to a path without oinod.
func (w *world) change(p string) {
	full := filepath.Join(w.dir, p)
	if rapid.IntRange(0, 3).Draw(w.t, "delete") == 0 {
		os.Remove(full)
		os.Remove(filepath.Dir(full)) // goes when empty, as an agent's rm -r would
		os.MkdirAll(w.dir, 0o755)
		return
	}
	require.NoError(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(w.t, os.WriteFile(full, []byte(w.content()), 0o644))
}

func (w *world) content() string {
	return fmt.Sprintf("%d %s", w.step, rapid.StringMatching(`[a-c]{0,3}`).Draw(w.t, "content"))
}

func (w *world) path() string { return rapid.SampledFrom(modelPaths).Draw(w.t, "path") }

func (w *world) listed() []string {
	l, err := w.s.Checkpoints(w.ctx())
	require.NoError(w.t, err)
	var ids []string
	for _, c := range l {
		ids = append(ids, c.EntryID)
	}
	return ids
}

func (w *world) prompt(*rapid.T) {
	e, err := w.s.Prompt(w.ctx(), []byte(`[{"type":"text","text":"go"}]`))
	require.NoError(w.t, err)
	w.at[e.ID], w.made[e.ID] = w.tree(), w.step
	w.turn, w.before = true, nil
}

func (w *world) write(t *rapid.T) {
	if !w.turn {
		t.Skip("no turn")
	}
	_, err := w.s.Write(w.ctx(), filepath.Join(w.dir, w.path()), []byte(w.content()))
	require.NoError(w.t, err)
	w.before = nil
}

func (w *world) recordAndChange(t *rapid.T) {
	if !w.turn {
		t.Skip("no turn")
	}
	p := w.path()
	r := w.s.Record(w.ctx(), []RecordRequest{{Paths: []string{filepath.Join(w.dir, p)}}})
	require.NoError(w.t, r[0].Err)
	w.change(p)
	w.before = nil
}

func (w *world) endTurn(t *rapid.T) {
	if !w.turn {
		t.Skip("no turn")
	}
	_, err := w.s.EndTurn(w.ctx())
	require.NoError(w.t, err)
	w.turn = false
}

func (w *world) user(t *rapid.T) {
	if w.turn {
		t.Skip("it would count as the turn's")
	}
	p := w.path()
	w.change(p)
	w.users[p] = w.step
}

func (w *world) restart(*rapid.T) {
	id := w.s.ID()
	listed, err := w.s.Checkpoints(w.ctx())
	require.NoError(w.t, err)
	require.NoError(w.t, w.reg.Shutdown(w.ctx()))
	w.open()
	w.s, err = w.reg.Get(w.ctx(), id)
	require.NoError(w.t, err)
	again, err := w.s.Checkpoints(w.ctx())
	require.NoError(w.t, err)
	require.Equal(w.t, listed, again)
}

func (w *world) rewind(t *rapid.T) {
	ids := append(w.listed(), Start)
	p := RewindParams{EntryID: rapid.SampledFrom(ids).Draw(t, "target")}
	if rapid.Bool().Draw(t, "conversation") {
		p.Conversation = RewindConversation
	}
	before, dirs := w.tree(), w.dirs()
	branch, err := w.s.Branch("")
	require.NoError(w.t, err)
	dry := p
	dry.DryRun = true
	promised, err := w.s.Rewind(w.ctx(), dry)
	require.NoError(w.t, err)
	require.Equal(w.t, before, w.tree(), "a dry run changes nothing")
	r, err := w.s.Rewind(w.ctx(), p)
	require.NoError(w.t, err)
	require.Equal(w.t, promised.Restored, r.Restored)
	require.Equal(w.t, promised.Deleted, r.Deleted)
	require.Equal(w.t, promised.Failed, r.Failed)
	w.turn = false

	after := w.tree()
	failed := map[string]bool{}
	for _, f := range r.Failed {
		require.Equal(w.t, checkpoints.CodeConflict, f.Code, f.Message)
		failed[f.Path] = true
	}
	for _, path := range modelPaths {
		full := filepath.Join(w.dir, path)
		if failed[full] || w.users[path] > 0 {
			// A user changed it once: it may be kept, but then untouched.
			if !slices.Contains(r.Restored, full) && !slices.Contains(r.Deleted, full) {
				require.Equal(w.t, before[path], after[path], "%s was not named and has changed", path)
			}
		}
		want := map[string]string{} // start: nothing was there
		if p.EntryID != Start {
			want = w.at[p.EntryID]
		}
		if p.EntryID != Start && w.users[path] <= w.made[p.EntryID] || w.users[path] == 0 {
			got, gotOK := after[path]
			wanted, wantOK := want[path]
			require.False(w.t, failed[full], "%s failed although nobody else changed it", path)
			require.Equal(w.t, wantOK, gotOK, path)
			require.Equal(w.t, wanted, got, path)
		}
	}
	require.Equal(w.t, before["user/only"], after["user/only"])
	// A directory that was made only with a file is not listed, and gone all the same.
	wrote := len(r.Restored)+len(r.Deleted) > 0 || !slices.Equal(dirs, w.dirs())
	if !wrote && !(p.Conversation == RewindConversation && len(branch) > 0) {
		return
	}
	w.before = append(w.before, moment{before, w.at})
	// A later checkpoint that stays in the list, for a path that was kept,
	// no longer stands for the paths that went back to before it.
	at := map[string]map[string]string{}
	for id, tree := range w.at {
		at[id] = maps.Clone(tree)
		if p.EntryID != Start && w.made[id] < w.made[p.EntryID] {
			continue
		}
		for _, path := range modelPaths {
			if content, ok := after[path]; failed[filepath.Join(w.dir, path)] {
				continue
			} else if ok {
				at[id][path] = content
			} else {
				delete(at[id], path)
			}
		}
	}
	w.at = at
}

func (w *world) redo(t *rapid.T) {
	if len(w.before) == 0 {
		_, err := w.s.Redo(w.ctx(), RewindParams{})
		e, ok := err.(*Error)
		require.True(w.t, ok, "%v", err)
		require.Equal(w.t, NothingToRedo, e.Kind)
		return
	}
	clean := true
	for _, at := range w.users {
		clean = clean && at == 0
	}
	r, err := w.s.Redo(w.ctx(), RewindParams{})
	require.NoError(w.t, err)
	last := w.before[len(w.before)-1]
	if clean {
		require.Equal(w.t, last.tree, w.tree())
	}
	at := map[string]map[string]string{}
	for id, tree := range last.at {
		at[id] = maps.Clone(tree)
		for _, f := range r.Failed { // it stays rewound, and with the redo
			rel, err := filepath.Rel(w.dir, f.Path)
			require.NoError(w.t, err)
			if content, ok := w.at[id][rel]; ok {
				at[id][rel] = content
			} else {
				delete(at[id], rel)
			}
		}
	}
	w.at = at
	if r.Remaining == 0 {
		w.before = w.before[:len(w.before)-1]
	}
	w.turn = false
}

func (w *world) fork(t *rapid.T) {
	if w.turn {
		t.Skip("the fork's turn has ended")
	}
	entries, err := w.s.Branch("")
	require.NoError(w.t, err)
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	c, err := w.reg.Stage(w.ctx(), w.s, ids, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, c.Publish(w.ctx()))
	source, listed := w.s, w.listed()
	w.s, err = w.reg.Get(w.ctx(), c.ID())
	require.NoError(w.t, err)
	require.Equal(w.t, listed, w.listed())
	require.NoError(w.t, w.reg.Delete(w.ctx(), source.ID()))
	w.before = nil
}

// TestAnyStoryKeepsThePromises plays random turns, users' edits, rewinds,
// redos, forks and restarts. After each rewind: a path that only the session
// changed is what it was, and what anybody else changed is untouched unless named.
func TestAnyStoryKeepsThePromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "oinod-model-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		w := &world{
			t: t, agent: filepath.Join(dir, "agent"), dir: filepath.Join(dir, "work"),
			at: map[string]map[string]string{}, users: map[string]int{}, made: map[string]int{},
		}
		require.NoError(t, os.MkdirAll(filepath.Join(w.dir, "user"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, "user/only"), []byte("mine"), 0o600))
		w.open()
		defer func() { w.reg.Shutdown(w.ctx()) }()
		w.s, err = w.reg.Create(w.ctx(), CreateParams{Cwd: w.dir})
		require.NoError(t, err)
		wrap := func(f func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) { w.t = t; w.step++; f(t) }
		}
		actions := map[string]func(*rapid.T){
			"prompt": wrap(w.prompt), "write": wrap(w.write), "write again": wrap(w.write), "record": wrap(w.recordAndChange), "end": wrap(w.endTurn),
			"user": wrap(w.user), "restart": wrap(w.restart), "rewind": wrap(w.rewind), "redo": wrap(w.redo), "fork": wrap(w.fork),
		}
		t.Repeat(actions)
	})
}
