package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is the first of a listing.
func (b *box) listed() Info {
	b.t.Helper()
	infos, _, err := b.reg.List(b.t.Context(), ListParams{})
	require.NoError(b.t, err)
	return infos[0]
}

func TestAMessageIsShortened(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{" \n\t ", ""},
		{strings.Repeat("\n", 5000) + "hello" + strings.Repeat("\u2003", 5000) + " there ", "hello there"},
		{"abcde", "abcde"},
		{"abcdefghijkl", "abcdefghijkl"[:11]},
		{"abcdefghij kl", "abcdefghij"},
		{"abcdefghi kl", "abcdefghi k"},
		{"ääääääääääöö", "ääääääääääö"},
	} {
		require.Equal(t, test.want, shorten(test.in, 11), "%.20q", test.in)
	}
}

// The text of a message is what is called so, and nothing that looks like it.
func TestTheTextOfBlocks(t *testing.T) {
	for content, want := range map[string]string{
		`[{"type":"text","text":"a"},{"type":"image","data":""},{"text":"b","type":"text"}]`: "a\nb",
		`[{"type":"text","text":"a","TEXT":"b","Type":"image"}]`:                             "a",
		`[{"type":"text","text":"a","annotations":{"text":"no"}},null,{}]`:                   "a",
		`[{"type":"text","text":5}]`:                                                         "",
		`[5]`:                                                                                "",
		`null`:                                                                               "",
	} {
		require.Equal(t, want, blocksText([]byte(content)), content)
	}
	_, err := asBlocks([]byte(`[{"Type":"text","text":"a"}]`))
	refused(t, BadParams, err)
}

// F8: after the conversation was rewound and went on, a listing tells of the
// new branch, whether the session is open or not.
func TestAListingTellsOfTheActiveBranch(t *testing.T) {
	b := newBox(t)
	s := b.create(false)
	old := b.prompt(s, "old")
	b.append(s, Assistant, "an answer")
	b.rewind(s, RewindParams{EntryID: old, Conversation: RewindConversation})
	i := b.listed()
	require.Zero(t, i.Entries)
	require.Empty(t, i.Title+i.LastUserMessage)
	b.redo(s)
	require.Equal(t, "old", b.listed().Title)
	b.rewind(s, RewindParams{EntryID: old, Conversation: RewindConversation})
	b.prompt(s, "new")
	b.prompt(s, "newer")
	for range 3 { // open, closed, and closed with its summary cached
		i := b.listed()
		require.Equal(t, 2, i.Entries)
		require.Equal(t, "new", i.Title)
		require.Equal(t, "newer", i.LastUserMessage)
		require.Equal(t, 2, b.view(s.ID()).Entries)
		b.shut()
	}
	s = b.get(s.ID())
	require.NoError(t, s.SetTitle(t.Context(), "set"))
	require.Equal(t, "set", b.listed().Title)
}

// A summary that another version has cached is not taken for one of ours: what
// an older one has not told is not nothing.
func TestASummaryOfAnotherVersionIsNotRead(t *testing.T) {
	s := newShop(t, 3)
	want, _ := s.list()
	require.Equal(t, 1, want[0].Checkpoints)
	b, err := os.ReadFile(s.cache())
	require.NoError(t, err)
	var old []byte
	for line := range strings.Lines(string(b)) {
		object := string(mustDecode(t, []byte(line)))
		old = append(old, mustEncode(t, strings.NewReplacer(`"version":3`, `"version":2`, `,"checkpoints":1`, "").Replace(object))...)
	}
	require.NoError(t, os.WriteFile(s.cache(), old, 0o600))
	s.next()
	got, read := s.list()
	require.Equal(t, want, got)
	require.Equal(t, 3, read)
}

// Whatever somebody asks for is activity; opening and closing is none.
func TestWhatIsActivity(t *testing.T) {
	b := newBox(t)
	one, two := b.create(false), b.create(false)
	e := b.prompt(one, "one")
	for i, do := range []func(){
		func() { b.write(one, "a", "1") },
		func() { b.record(one, "b") },
		func() { b.write(one, "a", "2") },
		func() { b.end(one) },
		func() { b.rewind(one, RewindParams{EntryID: e}) },
		func() { b.redo(one) },
		func() { require.NoError(t, one.SetTitle(t.Context(), "t")) },
		func() { require.NoError(t, one.Label(t.Context(), e, "l")) },
		func() {
			_, err := one.PutState(t.Context(), "", []byte("1"))
			require.NoError(t, err)
		},
	} {
		b.prompt(two, "two")
		require.Equal(t, two.ID(), b.listed().SessionID)
		do()
		require.Equal(t, one.ID(), b.listed().SessionID, "after %d", i)
	}
	at := b.listed().UpdatedAt
	e = b.prompt(two, "two")
	b.record(two, "c")
	newest := b.listed()
	for range 2 { // with an open turn, which is closed and goes on
		b.shut()
		b.get(two.ID())
		b.get(one.ID())
		require.Equal(t, newest.UpdatedAt, b.listed().UpdatedAt)
	}
	_, err := b.get(two.ID()).Checkpoints(t.Context())
	require.NoError(t, err)
	b.shut()
	infos, _, err := b.reg.List(t.Context(), ListParams{})
	require.NoError(t, err)
	require.Equal(t, []int64{newest.UpdatedAt, at}, []int64{infos[0].UpdatedAt, infos[1].UpdatedAt})
	require.NotEmpty(t, e)
}

// A log that cannot be read still says where its session works, if that can be
// known; else where the log is.
func TestAProblemIsListedWithADirectory(t *testing.T) {
	b := newBox(t)
	_, path, log, _ := b.story()
	damaged := []byte(strings.Replace(string(log), `"id"`, `"iD"`, 1))
	newer := []byte(fmt.Sprintf(`{"type":"session","version":2,"cwd":%q}`+"\n", b.dir))
	lying := []byte(`{"type":"session","version":2,"cwd":"/elsewhere"}` + "\n")
	for i, test := range []struct {
		log  []byte
		want string
	}{{damaged, b.dir}, {newer, b.dir}, {lying, filepath.Dir(path)}, {[]byte(`{"type":"session","version":2}` + "\n"), filepath.Dir(path)}} {
		require.NoError(t, os.WriteFile(path, test.log, 0o600))
		info := b.listed()
		require.NotEmpty(t, info.Problem)
		require.Equal(t, test.want, info.Cwd, i)
	}
	other := b.create(false)
	b.prompt(other, "x")
	for range 2 {
		infos, _, err := b.reg.List(t.Context(), ListParams{})
		require.NoError(t, err)
		require.Len(t, infos, 2)
		require.Equal(t, "newer", infos[1].Problem)
		require.Equal(t, b.dir, infos[1].Cwd)
		infos, next, err := b.reg.List(t.Context(), ListParams{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, other.ID(), infos[0].SessionID)
		infos, _, err = b.reg.List(t.Context(), ListParams{Limit: 1, Cursor: next})
		require.NoError(t, err)
		require.Equal(t, b.dir, infos[0].Cwd)
		require.NoError(t, b.reg.Close(t.Context(), other.ID()))
	}
}
