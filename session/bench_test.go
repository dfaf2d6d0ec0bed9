package session

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
