package session

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// benchSession is a session with n files of 4 KiB in its workspace.
func benchSession(b *testing.B, n int) (*Session, []string) {
	dir := b.TempDir()
	work := filepath.Join(dir, "work")
	require.NoError(b, os.Mkdir(work, 0o755))
	var paths []string
	for i := range n {
		p := filepath.Join(work, fmt.Sprintf("f%05d", i))
		content := fmt.Appendf(make([]byte, 0, 4096), "%04096d", i)
		require.NoError(b, os.WriteFile(p, content, 0o644))
		paths = append(paths, p)
	}
	reg, err := OpenRegistry(Options{Dir: filepath.Join(dir, "agent"), Limits: DefaultLimits, App: "bench"})
	require.NoError(b, err)
	b.Cleanup(func() { reg.Shutdown(b.Context()) })
	s, err := reg.Create(b.Context(), CreateParams{Cwd: work})
	require.NoError(b, err)
	return s, paths
}

func benchPrompt(b *testing.B, s *Session) string {
	e, err := s.Prompt(b.Context(), []byte(`[{"type":"text","text":"go"}]`))
	require.NoError(b, err)
	return e.ID
}

// BenchmarkRecord records 200 files of 4 KiB a turn, each another content than
// the turn before, in one request and as 200 that wait together.
func BenchmarkRecord(b *testing.B) {
	for _, split := range []bool{false, true} {
		name := "one request"
		if split {
			name = "200 requests"
		}
		b.Run(name, func(b *testing.B) {
			s, paths := benchSession(b, 200)
			turn := 0
			for b.Loop() {
				b.StopTimer()
				turn++
				for i, p := range paths {
					require.NoError(b, os.WriteFile(p, fmt.Appendf(nil, "%08d%04088d", turn, i), 0o644))
				}
				b.StartTimer()
				benchPrompt(b, s)
				reqs := []RecordRequest{{Paths: paths}}
				if split {
					reqs = nil
					for i := range paths {
						reqs = append(reqs, RecordRequest{Paths: paths[i : i+1]})
					}
				}
				for _, r := range s.Record(b.Context(), reqs) {
					require.NoError(b, r.Err)
				}
			}
			b.ReportMetric(float64(200*b.N)/b.Elapsed().Seconds(), "paths/s")
		})
	}
}

// BenchmarkFold reads back a log of 20,000 intervals.
func BenchmarkFold(b *testing.B) {
	s, paths := benchSession(b, 200)
	for range 100 {
		benchPrompt(b, s)
		for _, r := range s.Record(b.Context(), []RecordRequest{{Paths: paths}}) {
			require.NoError(b, r.Err)
		}
	}
	reg := s.reg
	for b.Loop() {
		require.NoError(b, reg.Close(b.Context(), s.ID()))
		start := time.Now()
		again, err := reg.Get(b.Context(), s.ID())
		require.NoError(b, err)
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/open")
		s = again
	}
}

// benchStore is an agent directory with n sessions of some turns each, none open.
func benchStore(b *testing.B, n int) (dir string) {
	dir = b.TempDir()
	work := filepath.Join(dir, "work")
	require.NoError(b, os.Mkdir(work, 0o755))
	reg, err := OpenRegistry(Options{Dir: filepath.Join(dir, "agent"), Limits: DefaultLimits, App: "bench"})
	require.NoError(b, err)
	s, err := reg.Create(b.Context(), CreateParams{Cwd: work})
	require.NoError(b, err)
	answer, err := encodeRecord(strings.Repeat("some words of an answer ", 40))
	require.NoError(b, err)
	for range 20 {
		benchPrompt(b, s)
		_, err := s.Append(b.Context(), []NewEntry{{Role: Assistant, Content: answer}})
		require.NoError(b, err)
	}
	path := filepath.Join(dir, "agent", s.place.log())
	require.NoError(b, reg.Shutdown(b.Context()))
	log, err := os.ReadFile(path)
	require.NoError(b, err)
	first, rest, _ := bytes.Cut(log, []byte("\n"))
	for i := range n - 1 {
		id := fmt.Sprintf("0199a5b2-0000-7000-8000-%012d", i)
		object, err := journal.Decode(bytes.Clone(first))
		require.NoError(b, err)
		line, err := journal.Encode(nil, bytes.Replace(object, []byte(s.ID()), []byte(id), 1))
		require.NoError(b, err)
		require.NoError(b, os.WriteFile(filepath.Join(filepath.Dir(path), fmt.Sprintf("%d_%s.jsonl", 1_700_000_000_000+i, id)), append(line, rest...), 0o600))
	}
	return dir
}

// BenchmarkList lists 10,000 sessions of 20 turns (24 KiB each): with nothing
// cached; in a new process; and again in the same one. "Reading" is what a
// listing without a cache does each time.
func BenchmarkList(b *testing.B) {
	dir := benchStore(b, 10_000)
	open := func() *Registry {
		reg, err := OpenRegistry(Options{Dir: filepath.Join(dir, "agent"), Limits: DefaultLimits})
		require.NoError(b, err)
		return reg
	}
	list := func(reg *Registry) {
		infos, _, err := reg.List(b.Context(), ListParams{Cwd: filepath.Join(dir, "work")})
		require.NoError(b, err)
		require.Len(b, infos, pageSize)
	}
	caches, err := filepath.Glob(filepath.Join(dir, "agent", "sessions", "*"))
	require.NoError(b, err)
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			os.Remove(filepath.Join(caches[0], summariesName))
			reg := open()
			b.StartTimer()
			list(reg)
			require.NoError(b, reg.Shutdown(b.Context()))
		}
	})
	b.Run("warm, new process", func(b *testing.B) {
		for b.Loop() {
			reg := open()
			list(reg)
			require.NoError(b, reg.Shutdown(b.Context()))
		}
	})
	b.Run("warm", func(b *testing.B) {
		reg := open()
		list(reg)
		for b.Loop() {
			list(reg)
		}
		require.NoError(b, reg.Shutdown(b.Context()))
	})
}

// BenchmarkAppend appends an entry of 1 KiB, durably.
func BenchmarkAppend(b *testing.B) {
	s, _ := benchSession(b, 0)
	benchPrompt(b, s)
	content, err := encodeRecord(strings.Repeat("x", 1000))
	require.NoError(b, err)
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d a request", n), func(b *testing.B) {
			entries := make([]NewEntry, n)
			for i := range entries {
				entries[i] = NewEntry{Role: Assistant, Content: content}
			}
			for b.Loop() {
				_, err := s.Append(b.Context(), entries)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}
