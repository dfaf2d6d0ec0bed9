package session

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// oldStore writes an original Oino's agent directory: a session's index and
// blobs, by its id.
func oldStore(t *testing.T, sessions map[string]string, blobs map[string]string) string {
	dir := t.TempDir()
	for id, index := range sessions {
		at := filepath.Join(dir, "checkpoints", id)
		require.NoError(t, os.MkdirAll(filepath.Join(at, "blobs"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, "index.json"), []byte(index), 0o644))
	}
	for name, content := range blobs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoints", name), []byte(content), 0o644))
	}
	return dir
}

// tree is all names below dir, with what files hold and when they changed.
func tree(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		all[path] = info.Mode().String() + info.ModTime().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			all[path] += string(b)
		}
		return nil
	}))
	return all
}

func TestAnOldStoreIsImported(t *testing.T) {
	b := newBox(t)
	b.put("sub/a", "now")
	require.NoError(t, os.Chmod(b.path("sub/a"), 0o755))
	b.put("sub/deep/n", "made by the agent")
	index := fmt.Sprintf(`[
		{"entryId":"old-1","createdAt":1600000000000,"files":[[%[1]q,{"kind":"file","name":"0"}]]},
		{"entryId":"old-2","createdAt":1600000001000,"files":[[%[1]q,{"kind":"file","name":"1"}],[%[2]q,{"kind":"absent"}]]},
		{"entryId":"old-3","createdAt":1600000002000,"files":[]}
	]`, b.path("sub/a"), b.path("sub/deep/n"))
	old := oldStore(t, map[string]string{"sess-1": index}, map[string]string{"sess-1/blobs/0": "first", "sess-1/blobs/1": ""})
	before := tree(t, old)

	done, err := b.reg.Import(t.Context(), ImportParams{Dir: old})
	require.NoError(t, err)
	require.Empty(t, done.Problems)
	require.Len(t, done.Sessions, 1)
	id := done.Sessions[0].SessionID
	require.Equal(t, ImportedSession{OldID: "sess-1", SessionID: id, Cwd: b.path("sub"), Checkpoints: 3, Files: 3}, done.Sessions[0])
	require.Equal(t, before, tree(t, old), "the source is untouched")

	infos, _, err := b.reg.List(t.Context(), ListParams{Cwd: b.path("sub")})
	require.NoError(t, err)
	require.Equal(t, "sess-1", infos[0].ImportedFrom)
	require.EqualValues(t, 1600000000000, infos[0].CreatedAt)
	require.EqualValues(t, 1600000002000, infos[0].UpdatedAt)
	b.whole()

	// It is a session like any other.
	s := b.get(id)
	l, err := s.Checkpoints(t.Context())
	require.NoError(t, err)
	require.Len(t, l, 3)
	require.Equal(t, Checkpoint{EntryID: "old-2", CreatedAt: 1600000001000, Files: []CheckpointFile{{b.path("sub/a"), true}, {b.path("sub/deep/n"), false}}}, l[1])
	r := b.rewind(s, RewindParams{EntryID: "old-2"})
	require.Equal(t, []string{b.path("sub/a")}, r.Restored)
	require.Equal(t, []string{b.path("sub/deep/n")}, r.Deleted)
	require.Len(t, r.Unchecked, 2)
	b.has("sub/a", "") // an empty file is not a missing one
	b.rewind(s, RewindParams{EntryID: "old-1"})
	b.has("sub/a", "first")
	info, err := os.Stat(b.path("sub/a"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "a mode that the store does not know stays")
	b.shut()

	// A second run does nothing, also when the session has gone on.
	done, err = b.reg.Import(t.Context(), ImportParams{Dir: old})
	require.NoError(t, err)
	require.Equal(t, Imported{Known: []string{"sess-1"}}, done)
	infos, _, err = b.reg.List(t.Context(), ListParams{})
	require.NoError(t, err)
	require.Len(t, infos, 1)
}

func TestWhatIsWrongInAnOldStoreIsToldAndTheRestImported(t *testing.T) {
	b := newBox(t)
	b.put("a", "now")
	b.put("b", "now")
	file := func(path, name string) string { return fmt.Sprintf(`[%q,{"kind":"file","name":%q}]`, path, name) }
	index := `[{"entryId":"e1","createdAt":1,"files":[` +
		file(b.path("a"), "missing") + `,` + file(b.path("b"), "1") + `,` +
		fmt.Sprintf(`[%q,{"kind":"file","name":"short","size":9}],`, b.path("c")) +
		file(b.path("d"), "../../../../etc/passwd") + `,` + file(b.path("e"), "link") + `,` +
		fmt.Sprintf(`[%q,{"kind":"socket"}],`, b.path("f")) +
		file("relative", "1") + `,` + file(filepath.Join(b.dir, ".git", "HEAD"), "1") + `]},
		{"entryId":"e1","createdAt":2,"files":[]}, {"entryId":"","createdAt":2,"files":[]}, {"entryId":"start","createdAt":2,"files":[]}]`
	old := oldStore(t, map[string]string{"good": index, "bad": `[{"entryId":`, "nopaths": `[{"entryId":"x","createdAt":5,"files":[]}]`, "odd": `[{"entryId":"x","createdAt":5,"files":[["/a"]]}]`},
		map[string]string{"good/blobs/1": "b0", "good/blobs/short": "12345", "file": "not a session"})
	require.NoError(t, os.Symlink("1", filepath.Join(old, "checkpoints/good/blobs/link")))
	done, err := b.reg.Import(t.Context(), ImportParams{Dir: old})
	require.NoError(t, err)
	require.Len(t, done.Sessions, 1)
	require.Len(t, done.Problems, 13, "%q", done.Problems)
	s := b.get(done.Sessions[0].SessionID)
	require.Equal(t, []string{"e1"}, b.checkpointIDs(s))
	r := b.rewind(s, RewindParams{EntryID: "e1"})
	require.Equal(t, []string{b.path("b")}, r.Restored)
	b.has("b", "b0")
	b.has("a", "now")
	var lost []string
	for _, f := range r.Failed {
		require.Equal(t, checkpoints.CodeNotCovered, f.Code)
		lost = append(lost, f.Path)
	}
	require.Equal(t, []string{b.path("a"), b.path("c"), b.path("d"), b.path("e"), b.path("f")}, lost)

	// A directory for those that name none; what lies elsewhere is told.
	done, err = b.reg.Import(t.Context(), ImportParams{Dir: old, Cwd: b.agent})
	require.NoError(t, err)
	require.Len(t, done.Sessions, 1)
	require.Equal(t, "nopaths", done.Sessions[0].OldID)
	require.Equal(t, []string{"good"}, done.Known)

	for _, dir := range []string{filepath.Join(old, "checkpoints"), filepath.Join(old, "nowhere")} {
		_, err = b.reg.Import(t.Context(), ImportParams{Dir: dir})
		refused(t, BadParams, err)
	}
}

func TestMoreOldCheckpointsThanAreKept(t *testing.T) {
	b := newBox(t)
	b.put("a", "now")
	var index []any
	blobs := map[string]string{}
	for i := range 130 {
		name := fmt.Sprint(i)
		blobs["s/blobs/"+name] = "v" + name
		index = append(index, map[string]any{"entryId": "e" + name, "createdAt": i, "files": []any{[]any{b.path("a"), map[string]string{"kind": "file", "name": name}}}})
	}
	data, err := json.Marshal(index)
	require.NoError(t, err)
	done, err := b.reg.Import(t.Context(), ImportParams{Dir: oldStore(t, map[string]string{"s": string(data)}, blobs), Cwd: b.dir})
	require.NoError(t, err)
	s := b.get(done.Sessions[0].SessionID)
	require.Len(t, b.checkpointIDs(s), DefaultLimits.MaxCheckpoints)
	_, err = s.Rewind(t.Context(), RewindParams{EntryID: "e29"})
	refused(t, CheckpointEvicted, err)
	b.rewind(s, RewindParams{EntryID: "e30"})
	b.has("a", "v30")
	b.rewind(s, RewindParams{EntryID: Start})
	b.has("a", "v0")
}
