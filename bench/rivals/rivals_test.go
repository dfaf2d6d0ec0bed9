package rivals

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
}

// What the seed does for its time is enough to rewind.
func TestTheSeedBringsBackWhatItRecorded(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	s, err := NewSeed(filepath.Join(dir, "store"))
	require.NoError(t, err)
	require.Error(t, s.Record(a), "before any prompt")

	write(t, a, "one")
	require.NoError(t, s.Prompt("first"))
	require.NoError(t, s.Record(a))
	write(t, a, "two")
	require.NoError(t, s.Record(a), "known: the first state stays")
	require.NoError(t, s.Prompt("second"))
	require.NoError(t, s.Record(a))
	require.NoError(t, s.Record(b))
	write(t, a, "three")
	write(t, b, "new")

	require.NoError(t, s.Rewind("first"))
	content, err := os.ReadFile(a)
	require.NoError(t, err)
	require.Equal(t, "one", string(content))
	require.NoFileExists(t, b)
}

func TestTheSeedAnswersOnTheWire(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	write(t, a, "one")
	in := `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}
{"jsonrpc":"2.0","id":2,"method":"_oino/append","params":{"entries":[{"role":"user","id":"t1"}]}}
{"jsonrpc":"2.0","id":3,"method":"_oino/record","params":{"paths":["` + filepath.ToSlash(a) + `"]}}
{"jsonrpc":"2.0","id":4,"method":"no/such","params":{}}
`
	var out strings.Builder
	require.NoError(t, ServeSeed(filepath.Join(dir, "store"), strings.NewReader(in), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	for _, line := range lines[:3] {
		require.Contains(t, line, `"result"`)
	}
	require.Contains(t, lines[3], `"error"`)
	index, err := os.ReadFile(filepath.Join(dir, "store", "index.json"))
	require.NoError(t, err)
	require.Contains(t, string(index), `"blob":"00000001"`)
}

func TestReadLogsReadsWhatAListingShows(t *testing.T) {
	dir := t.TempDir()
	for _, s := range []struct{ id, at string }{{"a", "10"}, {"b", "20"}} {
		sub := filepath.Join(dir, s.id)
		require.NoError(t, os.Mkdir(sub, 0o755))
		write(t, filepath.Join(sub, "1_"+s.id+".jsonl"), `{"type":"session","id":"`+s.id+`","cwd":"/w","createdAt":1}
{"type":"entry","role":"user","createdAt":2,"content":["hello"]}
{"type":"entry","role":"user","createdAt":`+s.at+`,"content":["bye"]}
`)
	}
	all, err := ReadLogs(dir)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "b", all[0].ID)
	require.Equal(t, 2, all[0].Entries)
	require.JSONEq(t, `["hello"]`, string(all[0].First))
	require.JSONEq(t, `["bye"]`, string(all[0].Last))
}
