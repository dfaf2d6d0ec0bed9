package checkpoints

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

const (
	benchFiles = 10_000
	benchSize  = 4096
)

func benchContent(gen, i int) []byte {
	content := make([]byte, 0, benchSize)
	for line := 0; len(content) < benchSize-40; line++ {
		content = fmt.Appendf(content, "%d line %d of file %d\n", gen*line, line, i)
	}
	return content
}

func benchName(i int) string { return fmt.Sprintf("src/d%d/e%d/f%d.go", i%10, i%100, i) }

func plantBench(b *testing.B, base string, gen int) {
	b.Helper()
	for i := range benchFiles {
		at := filepath.Join(base, benchName(i))
		require.NoError(b, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(b, os.WriteFile(at, benchContent(gen, i), 0o644))
	}
}

// BenchmarkAct is a rewind of 10,000 changed files, from the look at them to
// the last sync, with a blob store on disk. "plain" reads and writes as many files,
// as cp -r does, without a sync, a check, or a way back.
func BenchmarkAct(b *testing.B) {
	for _, part := range []string{"all", "act"} {
		b.Run(part, func(b *testing.B) { benchAct(b, part == "act") })
	}
	b.Run("plain", func(b *testing.B) {
		src, dst := b.TempDir(), b.TempDir()
		plantBench(b, src, 1)
		n := 0
		for b.Loop() {
			n++
			to := filepath.Join(dst, fmt.Sprint(n))
			require.NoError(b, filepath.WalkDir(src, func(at string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				out := to + at[len(src):]
				if e.IsDir() {
					return os.Mkdir(out, 0o755)
				}
				content, err := os.ReadFile(at)
				if err != nil {
					return err
				}
				return os.WriteFile(out, content, 0o644)
			}))
		}
	})
}

func benchAct(b *testing.B, actAlone bool) {
	base, store := b.TempDir(), b.TempDir()
	d, err := disk.Open(store)
	require.NoError(b, err)
	s := blobs.Open(d)
	w, err := OpenWorkspace(Config{Roots: []string{base}, Blobs: s, MaxKept: 16 << 20})
	require.NoError(b, err)
	defer w.Close()
	defer s.Close()
	plantBench(b, base, 0)
	touched := make([]Touched, benchFiles)
	paths := make([]string, benchFiles)
	for i := range touched {
		paths[i] = base + "/" + benchName(i)
		c, err := w.Capture(paths[i])
		require.NoError(b, err)
		touched[i] = Touched{Path: paths[i], Target: c.State, Parents: c.Parents}
	}
	require.NoError(b, s.Sync())
	for n := 1; b.Loop(); n++ {
		b.StopTimer()
		plantBench(b, base, n)
		time.Sleep(100 * time.Millisecond) // a turn is longer; without it, nothing could be trusted to be unchanged
		if !actAlone {
			b.StartTimer()
		}
		for i, now := range w.LookAll(paths) {
			touched[i].Now = now
		}
		p := NewPlan(touched, Keep, never)
		in, failed, err := w.Prepare(b.Context(), p)
		require.NoError(b, err)
		require.Empty(b, failed)
		require.Len(b, in.Steps, benchFiles)
		if actAlone {
			b.StartTimer()
		}
		o := w.Act(b.Context(), in, false)
		require.Empty(b, o.Failed)
		require.Len(b, o.Done, benchFiles)
	}
}

func BenchmarkCapture(b *testing.B) {
	base, store := b.TempDir(), b.TempDir()
	d, err := disk.Open(store)
	require.NoError(b, err)
	s := blobs.Open(d)
	w, err := OpenWorkspace(Config{Roots: []string{base}, Blobs: s, MaxKept: 16 << 20})
	require.NoError(b, err)
	defer w.Close()
	defer s.Close()
	plantBench(b, base, 1)
	i := 0
	for b.Loop() {
		_, err := w.Capture(base + "/" + benchName(i%benchFiles))
		require.NoError(b, err)
		i++
	}
	require.NoError(b, s.Sync())
}

func BenchmarkLookAll(b *testing.B) {
	base := b.TempDir()
	plantBench(b, base, 1)
	w := open(b, base)
	var paths []string
	for i := range benchFiles {
		paths = append(paths, base+"/"+benchName(i))
	}
	for b.Loop() {
		w.LookAll(paths)
	}
}
