package workspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

func genState() *rapid.Generator[checkpoints.State] {
	return rapid.Custom(func(t *rapid.T) checkpoints.State {
		s := checkpoints.State{
			Kind: checkpoints.Kind(rapid.IntRange(0, int(checkpoints.Uncovered)).Draw(t, "kind")),
			Mode: rapid.Uint32Range(0, 0o7777).Draw(t, "mode"), Size: rapid.Int64Range(0, 1<<40).Draw(t, "size"),
			Target: rapid.String().Draw(t, "target"),
		}
		if rapid.Bool().Draw(t, "digest") {
			s.Digest = blobs.Digest{1, 2, 3, byte(s.Mode)}
		}
		if s.Kind == checkpoints.Uncovered {
			s.Reason = rapid.SampledFrom(reasons[1:]).Draw(t, "reason")
		}
		return s
	})
}

func genRecord() *rapid.Generator[record] {
	return rapid.Custom(func(t *rapid.T) record {
		r := record{op: op(rapid.IntRange(1, int(noOp)-1).Draw(t, "op")), path: rapid.StringOfN(rapid.RuneFrom([]rune("abc/é")), 1, 20, -1).Draw(t, "path")}
		if r.op == changed || r.op == gone {
			r.before = genState().Draw(t, "before")
		}
		if r.op != gone && r.op != restat {
			r.after = genState().Draw(t, "after")
		}
		if r.op != gone {
			r.racy = rapid.Bool().Draw(t, "racy")
			r.stat = stat{
				kind: kind(rapid.IntRange(0, int(special)).Draw(t, "kind")), mode: rapid.Uint32().Draw(t, "mode"), size: rapid.Int64Min(0).Draw(t, "size"),
				mtime: rapid.Int64().Draw(t, "mtime"), ctime: rapid.Int64().Draw(t, "ctime"), ino: rapid.Uint64().Draw(t, "ino"),
			}
		}
		return r
	})
}

// decodeAll reads records until the end or an error.
func decodeAll(b []byte) (all []record, err error) {
	p := partLine{Records: b}
	err = p.eachRecord(func(r record) { all = append(all, r) })
	return all, err
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := rapid.SliceOf(genRecord()).Draw(t, "records")
		for _, line := range partLines("part", eachOf(rs)) {
			got, err := decodeLine(line)
			require.NoError(t, err)
			all, err := decodeAll(got.(*partLine).Records)
			require.NoError(t, err)
			require.Equal(t, rs[:len(all)], all)
			rs = rs[len(all):]
		}
		require.Empty(t, rs)
	})
}

// Records cut at any byte give back a prefix of what was written, or an error.
func TestEveryCutOfRecordsIsAPrefix(t *testing.T) {
	rs := []record{
		{op: came, path: "a/b", after: checkpoints.State{Kind: checkpoints.File, Mode: 0o644, Size: 3, Digest: blobs.Digest{9}}, stat: stat{kind: regular, ino: 1 << 60}},
		{op: changed, path: "a/c", before: checkpoints.State{Kind: checkpoints.Symlink, Target: "x"}, after: checkpoints.State{Kind: checkpoints.Dir}, racy: true},
		{op: gone, path: "d", before: checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.TooLarge}},
		{op: gone, path: "da", before: checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.TooLarge, Size: 1 << 40, Stamp: 1<<64 - 1}},
	}
	var whole []byte
	previous := ""
	for i := range rs {
		whole = appendRecord(whole, previous, &rs[i])
		previous = rs[i].path
	}
	for cut := range len(whole) + 1 {
		got, err := decodeAll(whole[:cut])
		require.Equal(t, rs[:len(got)], append([]record{}, got...), "cut at byte %d", cut)
		require.Equal(t, cut == len(whole), err == nil && len(got) == len(rs))
	}
}

func FuzzRecords(f *testing.F) {
	r := record{op: changed, path: "a/b", before: checkpoints.State{Kind: checkpoints.File, Size: 1, Digest: blobs.Digest{1}}, after: checkpoints.State{Kind: checkpoints.Symlink, Target: "t"}}
	f.Add(appendRecord(nil, "", &r))
	f.Add(appendRecord(appendRecord(nil, "", &r), "a/b", &record{op: gone, path: "a/c"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := decodeAll(b)
		var again []byte
		previous := ""
		for i := range all {
			again = appendRecord(again, previous, &all[i])
			previous = all[i].path
		}
		got, err := decodeAll(again)
		require.NoError(t, err)
		require.Equal(t, len(all), len(got))
		for i := range all {
			require.Equal(t, all[i], got[i])
		}
	})
}
