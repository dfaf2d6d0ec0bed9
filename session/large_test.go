package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// writeStory writes the log of a session of about size bytes: turns of a
// message, an answer of 30 KiB, a tool call of 60 KiB and a changed file. It
// stands for a year of daily work.
func writeStory(t testing.TB, agent, cwd string, size int) string {
	h := &headerRecord{Type: "session", Version: formatVersion, ID: "0199a5b2-0000-7000-8000-000000000001", Cwd: cwd, CreatedAt: 1_700_000_000_000, App: "test", Tracking: Files}
	p := newPlace(h)
	require.NoError(t, os.MkdirAll(filepath.Join(agent, p.dir), 0o700))
	f, err := os.Create(filepath.Join(agent, p.log()))
	require.NoError(t, err)
	defer f.Close()
	words := bytes.Repeat([]byte(`some words, a \"quoted\" one, and a line\n`), 1600)
	var line []byte
	written, n, parent := 0, 0, ""
	put := func(r any) {
		o, err := encodeRecord(r)
		require.NoError(t, err)
		line, err = journal.Encode(line[:0], o)
		require.NoError(t, err)
		_, err = f.Write(line)
		require.NoError(t, err)
		written += len(line)
	}
	entry := func(role Role, length int) {
		id := fmt.Sprintf("e%07d", n)
		n++
		content := fmt.Appendf(nil, `[{"type":"text","text":"%d %s"}]`, n, words[:length-length%41])
		e := &entryRecord{Type: "entry", ID: id, ParentID: parent, Role: role, CreatedAt: 1_700_000_000_000 + int64(n), Content: content}
		if role == Tool {
			e.ToolCallID, e.Status = id, "completed"
		}
		put(e)
		parent = id
	}
	put(h)
	for turn := 1; written < size; turn++ {
		entry(User, 200)
		put(&beforeRecord{Type: "before", Turn: parent, Intervals: []intervalRecord{{N: turn, Path: filepath.Join(cwd, fmt.Sprint("f", turn%500)), Before: checkpoints.State{Kind: checkpoints.Absent}}}})
		user := parent
		entry(Assistant, 30<<10)
		entry(Tool, 60<<10)
		put(&endRecord{Type: "end", Turn: user, Why: "turn_end", Afters: []afterState{{N: turn, State: &checkpoints.State{Kind: checkpoints.File, Mode: 0o644, Size: 5}}}})
	}
	return h.ID
}

// peak is the most memory that this process has had resident, in bytes; 0
// where the system does not say.
func peak() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}

// BenchmarkLoad opens a log of 1 GB in a process of its own, and replays it;
// what it had resident at most is reported.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	id := writeStory(b, filepath.Join(dir, "agent"), dir, 1_000_000_000)
	for b.Loop() {
		loadInChild(b, dir, id)
	}
}

// A log is read with memory for what a session is, not for what was said in it.
func TestALargeLogIsLoadedInLittleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not say what is resident")
	}
	dir := t.TempDir()
	id := writeStory(t, filepath.Join(dir, "agent"), dir, 150_000_000)
	resident := loadInChild(t, dir, id)
	require.Less(t, resident, int64(150<<20))
}

// loadInChild opens and replays the session in a process of its own, and
// returns what it had resident at most.
func loadInChild(t testing.TB, dir, id string) int64 {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLoadAsAChild$", "-test.v")
	cmd.Env = append(os.Environ(), "OINO_TEST_LOAD="+dir, "OINO_TEST_SESSION="+id)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	m := regexp.MustCompile(`resident (\d+)`).FindSubmatch(out)
	require.NotNil(t, m, "%s", out)
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(t, err)
	if b, ok := t.(*testing.B); ok {
		b.ReportMetric(float64(n)/(1<<20), "MiB-resident")
		b.ReportMetric(time.Since(start).Seconds(), "s/load+replay")
	}
	return n
}

// TestLoadAsAChild is what loadInChild starts.
func TestLoadAsAChild(t *testing.T) {
	dir := os.Getenv("OINO_TEST_LOAD")
	if dir == "" {
		t.Skip("not a child")
	}
	reg, err := OpenRegistry(Options{Dir: filepath.Join(dir, "agent"), Limits: DefaultLimits, OpenRoot: disk.Open})
	require.NoError(t, err)
	ctx := context.Background()
	start := time.Now()
	s, err := reg.Get(ctx, os.Getenv("OINO_TEST_SESSION"))
	require.NoError(t, err)
	opened := time.Since(start)
	n := 0
	require.NoError(t, s.Replay(ctx, func(e Entry) error { n++; return nil }))
	require.Equal(t, len(s.state.order), n)
	require.NoError(t, reg.Shutdown(ctx))
	t.Log("opened in", opened, "resident", strings.TrimSpace(fmt.Sprint(peak())))
}
