package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// crash opens a copy of the agent directory, as the next process finds it
// after the first was killed.
func (b *box) crash(s *Session) *Session {
	b.t.Helper()
	copied := filepath.Join(b.t.TempDir(), "agent")
	require.NoError(b.t, os.CopyFS(copied, os.DirFS(b.agent)))
	require.NoError(b.t, b.reg.Shutdown(b.t.Context()))
	b.agent = copied
	b.openRegistry(b.reg.limits)
	s, err := b.reg.Get(b.t.Context(), s.ID())
	require.NoError(b.t, err)
	return s
}

func TestNoToolWorksOutsideATurn(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	_, err := s.Write(t.Context(), b.path("a"), nil)
	refused(t, NoTurn, err)
	_, err = s.Edit(t.Context(), b.path("a"), nil)
	refused(t, NoTurn, err)
	refused(t, NoTurn, s.Record(t.Context(), []RecordRequest{{Paths: []string{b.path("a")}}})[0].Err)
	_, err = s.EndTurn(t.Context())
	refused(t, NoTurn, err)
	e := b.prompt(s, "go")
	b.write(s, "a", "1")
	b.rewind(s, RewindParams{EntryID: e})
	_, err = s.Write(t.Context(), b.path("a"), nil)
	refused(t, NoTurn, err)
	require.Equal(t, true, err.(*Error).Data["endedByRewind"])
	require.NoDirExists(t, filepath.Join(b.dir, ".git"))
}

func TestATurnsResultIsGivenAgain(t *testing.T) {
	b := newBox(t)
	b.put("old", "0")
	b.put("gone", "0")
	b.put("same", "0")
	s := b.create(false)
	e := b.prompt(s, "go")
	b.record(s, "old", "gone", "same", "new")
	b.put("old", "1")
	b.put("new", "1")
	require.NoError(t, os.Remove(b.path("gone")))
	want := TurnResult{EntryID: e, Changed: []PathChange{
		{b.path("old"), checkpoints.Modified}, {b.path("gone"), checkpoints.Deleted}, {b.path("new"), checkpoints.Created},
	}}
	require.Equal(t, want, b.end(s))
	b.put("old", "2")
	require.Equal(t, want, b.end(s))
	s = b.restart(s)
	require.Equal(t, want, b.end(s))
	// A rewind makes no other turn of it, and neither does a redo.
	b.put("old", "1")
	require.Empty(t, b.rewind(s, RewindParams{EntryID: e}).Failed)
	require.Equal(t, want, b.end(s))
	s = b.restart(s)
	require.Equal(t, want, b.end(s))
	b.redo(s)
	require.Equal(t, want, b.end(s))
}

// What changes while the session is closed is somebody else's; what changes
// between a crash and the next open is the turn's.
func TestAnOpenTurnGoesOnAfterACloseAndAfterACrash(t *testing.T) {
	for _, how := range []string{"close", "crash"} {
		t.Run(how, func(t *testing.T) {
			b := newBox(t)
			b.put("recorded", "0")
			b.put("written", "0")
			b.put("left", "0")
			s := b.create(false)
			e := b.prompt(s, "go")
			b.record(s, "recorded", "left")
			b.put("recorded", "1")
			b.put("left", "1")
			b.write(s, "written", "1")
			if how == "close" {
				require.NoError(t, b.reg.Close(t.Context(), s.ID()))
				b.put("recorded", "2")
				b.put("written", "2")
				s = b.restart(s)
			} else {
				b.put("recorded", "2")
				b.put("written", "2")
				s = b.crash(s)
			}
			require.Equal(t, []string{e}, b.checkpointIDs(s))
			b.put("left", "3") // the turn goes on
			b.end(s)
			r := b.rewind(s, RewindParams{EntryID: e})
			b.has("left", "0")
			if how == "close" {
				require.Len(t, r.Failed, 2)
				b.has("recorded", "2")
				b.has("written", "2")
				return
			}
			require.Empty(t, r.Failed)
			b.has("recorded", "0")
			b.has("written", "0")
		})
	}
}

func TestAWriteThatFindsAnotherStateOpensASeam(t *testing.T) {
	b := newBox(t)
	b.put("a", "v0")
	s := b.create(false)
	e := b.prompt(s, "go")
	b.write(s, "a", "v1")
	b.put("a", "mine")
	b.write(s, "a", "v2")
	b.end(s)
	r := b.rewind(s, RewindParams{EntryID: e})
	require.Len(t, r.Failed, 1)
	b.has("a", "v2")
	b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Overwrite})
	b.has("a", "v0")
}

func TestARecordOfAWrittenPathReopensIt(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	e := b.prompt(s, "go")
	b.write(s, "a", "v1")
	require.Equal(t, []string{b.path("a")}, b.record(s, "a").Known)
	b.put("a", "by a command of the agent")
	b.end(s)
	require.Empty(t, b.rewind(s, RewindParams{EntryID: e}).Failed)
	b.lacks("a")
}

func TestOneBadPathAndNothingIsRecorded(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	b.prompt(s, "go")
	r := s.Record(t.Context(), []RecordRequest{
		{Paths: []string{b.path("a"), "/etc/passwd"}},
		{Paths: []string{b.path("b")}},
		{Paths: []string{b.path("b"), b.path("./x/../b"), b.path("c")}},
	})
	var outside *checkpoints.PathError
	require.ErrorAs(t, r[0].Err, &outside)
	require.Equal(t, []string{b.path("b")}, r[1].Recorded, "another request of the batch is not hurt")
	require.Equal(t, []string{b.path("c")}, r[2].Recorded)
	require.Equal(t, []string{b.path("b")}, r[2].Known)
	l, err := s.Checkpoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, []CheckpointFile{{b.path("b"), false}, {b.path("c"), false}}, l[0].Files)
}

// The list keeps the newest checkpoints with files; older changes live on in
// the baseline, so that the start can always be reached.
func TestRetentionFoldsIntoTheBaseline(t *testing.T) {
	b := newBox(t)
	b.openRegistry(Limits{MaxCheckpoints: 3, MaxSnapshotBytes: 1 << 20, MaxMessageBytes: 1 << 20})
	b.put("a", "start")
	b.put("once", "start")
	s := b.create(false)
	var ids []string
	at := map[string]string{}
	for i := range 8 {
		e := b.prompt(s, "go")
		if i == 5 {
			continue // a talk-only turn between others
		}
		ids = append(ids, e)
		at[e] = b.read("a")
		b.write(s, "a", fmt.Sprint(i))
		if i == 0 {
			b.write(s, "once", "0")
		}
		b.end(s)
	}
	s = b.restart(s)
	listed := b.checkpointIDs(s)
	require.Subset(t, listed, ids[len(ids)-3:])
	require.NotContains(t, listed, ids[len(ids)-4])
	_, err := s.Rewind(t.Context(), RewindParams{EntryID: ids[0]})
	refused(t, CheckpointEvicted, err)
	for i := len(ids) - 1; i >= len(ids)-3; i-- {
		r := b.rewind(s, RewindParams{EntryID: ids[i]})
		require.Empty(t, r.Failed)
		b.has("a", at[ids[i]])
	}
	b.rewind(s, RewindParams{EntryID: Start})
	b.has("a", "start")
	b.has("once", "start")
	b.redo(s)
	b.has("once", "0")
	evicted := 0
	for _, e := range b.events {
		if e.Type == "evicted" {
			evicted++
		}
	}
	require.Positive(t, evicted)
}

// A seam inside the baseline is a conflict for the start, and for nothing else.
func TestTheBaselineRemembersASeam(t *testing.T) {
	b := newBox(t)
	b.openRegistry(Limits{MaxCheckpoints: 1, MaxSnapshotBytes: 1 << 20, MaxMessageBytes: 1 << 20})
	b.put("a", "start")
	s := b.create(false)
	for i := range 4 {
		b.prompt(s, "go")
		b.write(s, "a", fmt.Sprint(i))
		b.end(s)
		if i == 1 {
			b.put("a", "mine")
		}
	}
	s = b.restart(s)
	require.Empty(t, b.rewind(s, RewindParams{EntryID: b.checkpointIDs(s)[0]}).Failed)
	b.has("a", "2")
	require.Len(t, b.rewind(s, RewindParams{EntryID: Start}).Failed, 1)
	b.has("a", "2")
}

func (b *box) read(name string) string {
	b.t.Helper()
	got, err := os.ReadFile(b.path(name))
	require.NoError(b.t, err)
	return string(got)
}

func TestAppendIsAllOrNothing(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	text := json.RawMessage(`"x"`)
	for _, bad := range [][]NewEntry{
		{{Role: User, Content: text}, {Role: "robot", Content: text}},
		{{Role: User, Content: text, ID: "a"}, {Role: User, Content: text, ID: "a"}},
		{{Role: User, Content: text, ID: "../a"}},
		{{Role: User, Content: text, ID: Start}},
		{{Role: User, Content: json.RawMessage(`{"type":"text"}`)}},
		{{Role: User, Content: json.RawMessage(`[{"text":"no type"}]`)}},
		{{Role: User, Content: json.RawMessage(`null`)}},
		{{Role: Tool, Content: text}},
		{{Role: Compaction, Summary: "s", KeepFrom: "nobody"}},
	} {
		_, err := s.Append(t.Context(), bad)
		require.Error(t, err, "%v", bad)
		page, err := s.Entries(t.Context(), EntriesQuery{})
		require.NoError(t, err)
		require.Empty(t, page.Entries)
	}
	ids, err := s.Append(t.Context(), []NewEntry{{Role: User, Content: text, ID: "a"}, {Role: Assistant, Content: text}})
	require.NoError(t, err)
	require.Equal(t, "a", ids[0])
	page, err := s.Entries(t.Context(), EntriesQuery{After: "a"})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	require.JSONEq(t, `[{"type":"text","text":"x"}]`, string(page.Entries[0].Content))
	require.Equal(t, "a", page.Entries[0].ParentID)
}

func TestTheModelSeesCompactionsAppliedAndNoCutOffCall(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	text := json.RawMessage(`"x"`)
	_, err := s.Append(t.Context(), []NewEntry{
		{Role: User, Content: text, ID: "u1"}, {Role: Assistant, Content: text, ID: "a1"},
		{Role: User, Content: text, ID: "u2"}, {Role: Assistant, Content: text, ID: "a2"},
		{Role: Compaction, Summary: "so far", KeepFrom: "u2", ID: "c"},
		{Role: User, Content: text, ID: "u3"},
		{Role: Tool, Content: text, ID: "t1", ToolCallID: "call1", Status: "pending"},
		{Role: Tool, Content: text, ID: "t2", ToolCallID: "call1", Status: "completed"},
		{Role: Tool, Content: text, ID: "t3", ToolCallID: "call2", Status: "in_progress"},
	})
	require.NoError(t, err)
	ids := func(q EntriesQuery) (ids []string) {
		page, err := s.Entries(t.Context(), q)
		require.NoError(t, err)
		for _, e := range page.Entries {
			ids = append(ids, e.ID)
		}
		return ids
	}
	require.Equal(t, []string{"u1", "a1", "u2", "a2", "c", "u3", "t1", "t2", "t3"}, ids(EntriesQuery{}))
	require.Equal(t, []string{"c", "u2", "a2", "u3", "t1", "t2"}, ids(EntriesQuery{Context: true}))
	// Of calls side by side one is done, and what is not lies before its result.
	_, err = s.Append(t.Context(), []NewEntry{
		{Role: User, Content: text, ID: "u4"},
		{Role: Tool, Content: text, ID: "A1", ToolCallID: "A", Status: "pending"},
		{Role: Tool, Content: text, ID: "B1", ToolCallID: "B", Status: "pending"},
		{Role: Tool, Content: text, ID: "A2", ToolCallID: "A", Status: "completed"},
		{Role: Custom, Content: text, ID: "x"},
		{Role: Tool, Content: text, ID: "B2", ToolCallID: "B", Status: "in_progress"},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"c", "u2", "a2", "u3", "t1", "t2", "t3", "u4", "A1", "A2", "x"}, ids(EntriesQuery{Context: true}))
	require.Len(t, ids(EntriesQuery{}), 15)
	b.rewind(s, RewindParams{EntryID: "u2", Conversation: RewindConversation})
	require.Equal(t, []string{"u1", "a1"}, ids(EntriesQuery{Context: true}))
}

// The conversation of a session whose directory is gone can still be read,
// and what was cut off waits until the directory is back.
func TestASessionIsReadWithoutItsDirectory(t *testing.T) {
	b := newBox(t)
	b.put("a", "0")
	s := b.create(false)
	e := b.prompt(s, "go")
	b.write(s, "a", "1")
	require.NoError(t, b.reg.Close(t.Context(), s.ID()))
	away := b.dir + ".away"
	require.NoError(t, os.Rename(b.dir, away))
	s = b.restart(s)
	require.Equal(t, []string{e}, b.checkpointIDs(s))
	page, err := s.Entries(t.Context(), EntriesQuery{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	var gone *checkpoints.PathError
	_, err = s.Rewind(t.Context(), RewindParams{EntryID: e})
	require.ErrorAs(t, err, &gone)
	_, err = s.Write(t.Context(), b.path("a"), nil)
	require.ErrorAs(t, err, &gone)
	require.NoError(t, os.Rename(away, b.dir))
	b.rewind(s, RewindParams{EntryID: e})
	b.has("a", "0")
}

// A merge that leaves a user's link where the agent's directory was makes
// nothing, and so leaves nothing.
func TestAMergeThatKeepsALinkLeavesNothing(t *testing.T) {
	b := newBox(t)
	require.NoError(t, os.Mkdir(b.path("d"), 0o755))
	s := b.create(false)
	e := b.prompt(s, "go")
	b.record(s, "d")
	require.NoError(t, os.Chmod(b.path("d"), 0o711))
	b.end(s)
	require.NoError(t, os.Remove(b.path("d")))
	require.NoError(t, os.Symlink("elsewhere", b.path("d")))
	b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Merge})
	require.Equal(t, map[string]string{"d": "link elsewhere"}, b.tree())
}

// Another session's write, and its rewind, are not what a turn did that only
// recorded the path; what two turns waited for is neither's alone.
func TestARecordedPathThatAnotherSessionChanges(t *testing.T) {
	b := newBox(t)
	b.put("y", "v0")
	b.put("z", "v0")
	s1, s2 := b.create(false), b.create(false)
	e1 := b.prompt(s1, "one")
	e2 := b.prompt(s2, "two")
	b.record(s1, "y")
	b.write(s2, "y", "s2 work")
	b.record(s1, "z")
	b.record(s2, "z")
	b.put("z", "by whom?")
	require.Equal(t, []PathChange{{b.path("z"), checkpoints.Modified}}, b.end(s1).Changed)
	r := b.rewind(s1, RewindParams{EntryID: e1})
	require.Empty(t, r.Restored)
	require.Len(t, r.Failed, 1)
	b.has("y", "s2 work")
	b.end(s2)
	r = b.rewind(s2, RewindParams{EntryID: e2})
	require.Equal(t, []string{b.path("y")}, r.Restored)
	require.Len(t, r.Failed, 1)
	b.has("z", "by whom?")

	e1 = b.prompt(s1, "three")
	b.write(s1, "q", "s1")
	b.end(s1)
	b.prompt(s2, "four")
	b.record(s2, "q")
	b.rewind(s1, RewindParams{EntryID: e1})
	b.lacks("q")
	require.Empty(t, b.end(s2).Changed)
}

// What a turn does to a recorded path after another session is its own again,
// with the other's part between.
func TestAPartOnEitherSideOfAnothers(t *testing.T) {
	b := newBox(t)
	b.put("y", "v0")
	s1, s2 := b.create(false), b.create(false)
	e1 := b.prompt(s1, "one")
	b.prompt(s2, "two")
	b.record(s1, "y")
	b.put("y", "s1")
	b.write(s2, "y", "s2")
	b.put("y", "s1 again")
	b.end(s1)
	r := b.rewind(s1, RewindParams{EntryID: e1})
	require.Len(t, r.Failed, 1, "a seam")
	b.has("y", "s1 again")
}
