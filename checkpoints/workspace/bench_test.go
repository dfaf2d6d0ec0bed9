package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchTree makes files of some 6 KB of words, 12 in a directory, last
// changed a minute ago as far as a capture can tell.
func benchTree(b *testing.B, files int) string {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 5000)
	for i := range words {
		w := make([]byte, 3+r.IntN(9))
		for j := range w {
			w[j] = byte('a' + r.IntN(26))
		}
		words[i] = string(w) + " "
	}
	top := b.TempDir()
	for n := 0; n < files; n++ {
		d := n / 12
		dir := filepath.Join(top, fmt.Sprintf("p%d/src%d/m%d", d%40, d/40%10, d))
		if n%12 == 0 {
			require.NoError(b, os.MkdirAll(dir, 0o755))
		}
		var content strings.Builder
		for size := r.IntN(12000); content.Len() < size; {
			content.WriteString(words[r.IntN(len(words))])
		}
		require.NoError(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file_%d_%s.go", n%12, strings.TrimSpace(words[r.IntN(len(words))]))), []byte(content.String()), 0o644))
	}
	return top
}

// benchFiles is the size of the tree that the project's numbers are about.
func benchFiles() int {
	if testing.Short() {
		return 2000
	}
	return 50_000
}

// rival returns a function that runs git in dir, with no configuration.
func rival(b *testing.B, dir string) func(args ...string) {
	b.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		b.Skip("SKIPPED: git is missing, so there is nothing to measure beside")
	}
	return func(args ...string) {
		b.Helper()
		c := exec.Command("git", args...)
		c.Dir, c.Env = dir, gitEnv(b.TempDir())
		out, err := c.CombinedOutput()
		require.NoError(b, err, "git %v: %s", args, out)
	}
}

// loop runs f and reports the processor's time beside the wall's.
func loop(b *testing.B, children bool, f func()) {
	start := processorTime(children)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64((processorTime(children)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// later is a clock for which all that was made until now has settled.
func later(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Minute) } }

func BenchmarkCaptureUnchanged(b *testing.B) {
	dir := benchTree(b, benchFiles())
	a := openAgentDir(b, b.TempDir(), later)
	w := a.open(b, "s1", dir)
	c, err := w.Capture(context.Background(), CaptureOptions{})
	require.NoError(b, err)
	require.True(b, c.Coverage.Complete)
	b.Run("oinod", func(b *testing.B) {
		loop(b, false, func() {
			_, err := w.Capture(context.Background(), CaptureOptions{})
			require.NoError(b, err)
		})
	})
	b.Run("oinod, a new process", func(b *testing.B) {
		require.NoError(b, w.Close())
		loop(b, false, func() {
			v, err := a.store.Open("s1", []string{dir})
			require.NoError(b, err)
			_, err = v.Capture(context.Background(), CaptureOptions{})
			require.NoError(b, err)
			require.NoError(b, v.Close())
		})
	})
	git := rival(b, dir)
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "all")
	git("status", "--porcelain")
	b.Run("git status", func(b *testing.B) {
		loop(b, true, func() { git("status", "--porcelain") })
	})
}

func BenchmarkCaptureFirst(b *testing.B) {
	dir := benchTree(b, benchFiles())
	b.Run("oinod", func(b *testing.B) {
		loop(b, false, func() {
			a := openAgentDir(b, b.TempDir(), later)
			w := a.open(b, "s1", dir)
			_, err := w.Capture(context.Background(), CaptureOptions{})
			require.NoError(b, err)
		})
	})
	b.Run("git add", func(b *testing.B) {
		git := rival(b, dir)
		loop(b, true, func() {
			b.StopTimer()
			require.NoError(b, os.RemoveAll(filepath.Join(dir, ".git")))
			git("init", "-q")
			b.StartTimer()
			git("add", "-A")
		})
	})
}

// BenchmarkTracked measures what 100,000 known files keep in memory.
func BenchmarkTracked(b *testing.B) {
	for b.Loop() {
		t := newTable()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var rs []record
		for n := range 100_000 {
			rs = append(rs, record{op: base, path: fmt.Sprintf("packages/module-%d/src/component-%d.ts", n/20, n)})
		}
		sortRecords(rs)
		t.apply(rs)
		rs = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		require.Equal(b, 100_000, t.count)
	}
}
