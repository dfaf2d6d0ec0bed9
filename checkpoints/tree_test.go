package checkpoints

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// tree is a directory as a literal: what is at each name below it. Two trees
// are equal when nothing is missing and nothing is extra.
type tree map[string]string

func file(content string) string               { return mfile(0o644, content) }
func mfile(mode uint32, content string) string { return fmt.Sprintf("file %04o %s", mode, content) }
func link(target string) string                { return "link " + target }
func dir() string                              { return mdir(0o755) }
func mdir(mode uint32) string                  { return fmt.Sprintf("dir %04o", mode) }
func fifo() string                             { return "fifo" }

// plant makes the tree below base.
func (tr tree) plant(t testing.TB, base string) {
	t.Helper()
	names := sortedNames(tr)
	for _, name := range names {
		at := filepath.Join(base, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		plantOne(t, at, tr[name])
	}
	for _, name := range slices.Backward(names) { // a directory may be read-only
		if mode, ok := strings.CutPrefix(tr[name], "dir "); ok {
			m, err := strconv.ParseUint(mode, 8, 32)
			require.NoError(t, err)
			require.NoError(t, os.Chmod(filepath.Join(base, name), fileMode(uint32(m))))
		}
	}
}

func sortedNames(tr tree) []string {
	var names []string
	for name := range tr {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func plantOne(t testing.TB, at, what string) {
	t.Helper()
	kind, rest, _ := strings.Cut(what, " ")
	switch kind {
	case "file":
		mode, content, _ := strings.Cut(rest, " ")
		m, err := strconv.ParseUint(mode, 8, 32)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
		require.NoError(t, os.Chmod(at, fileMode(uint32(m))))
	case "link":
		require.NoError(t, os.Symlink(rest, at))
	case "dir":
		require.NoError(t, os.MkdirAll(at, 0o755))
	case "fifo":
		makeFifo(t, at)
	default:
		t.Fatalf("a tree with %q", what)
	}
}

// treeOf is what is below base now.
func treeOf(t testing.TB, base string) tree {
	t.Helper()
	tr := tree{}
	require.NoError(t, filepath.WalkDir(base, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == base {
			return err
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(at[len(base)+1:])
		switch info.Mode().Type() {
		case fs.ModeDir:
			tr[name] = mdir(modeOf(info))
		case fs.ModeSymlink:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			tr[name] = link(target)
		case 0:
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			tr[name] = mfile(modeOf(info), string(content))
		default:
			tr[name] = "fifo"
		}
		return nil
	}))
	return tr
}

// bare is the tree without directories whose being there something in them says.
func (tr tree) bare() tree {
	out := tree{}
	for name, what := range tr {
		if strings.HasPrefix(what, "dir 0755") && slices.ContainsFunc(sortedNames(tr), func(o string) bool { return strings.HasPrefix(o, name+"/") }) {
			continue
		}
		out[name] = what
	}
	return out
}

// memory is a blob store of nothing but a map; fail makes an operation fail.
type memory struct {
	mu   sync.Mutex
	kept map[blobs.Digest][]byte
	fail func(op string, d blobs.Digest) error
}

func newMemory() *memory { return &memory{kept: map[blobs.Digest][]byte{}} }

func (m *memory) failing(op string, d blobs.Digest) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(op, d)
}

func (m *memory) Put(content []byte) (blobs.Digest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := digestOf(content)
	if err := m.failing("put", d); err != nil {
		return d, err
	}
	m.kept[d] = bytes.Clone(content)
	return d, nil
}

func (m *memory) Has(d blobs.Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.kept[d]
	return ok && m.failing("has", d) == nil
}

func (m *memory) PutFrom(r io.ReadSeeker) (blobs.Digest, int64, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return blobs.Digest{}, 0, err
	}
	d, err := m.Put(content)
	return d, int64(len(content)), err
}

func (m *memory) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failing("sync", blobs.Digest{})
}

func (m *memory) Get(d blobs.Digest, limit int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failing("get", d); err != nil {
		return nil, &blobs.Error{Digest: d, Err: err}
	}
	content, ok := m.kept[d]
	if !ok {
		return nil, &blobs.Error{Digest: d, Err: blobs.ErrMissing}
	}
	if digestOf(content) != d {
		return nil, &blobs.Error{Digest: d, Err: blobs.ErrDamaged}
	}
	return content, nil
}

func (m *memory) WriteTo(w io.Writer, d blobs.Digest) (int64, error) {
	content, err := m.Get(d, 0)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(content)
	return int64(n), err
}

func (m *memory) Check(d blobs.Digest) error {
	_, err := m.Get(d, 0)
	return err
}

// open opens a workspace over roots, with a blob store in memory.
func open(t testing.TB, roots ...string) *Workspace {
	t.Helper()
	w, err := OpenWorkspace(Config{Roots: roots, MaxKept: 16 << 20})
	require.NoError(t, err)
	w.blobs = newMemory()
	t.Cleanup(func() { w.Close() })
	return w
}

// workspace plants a tree in a directory of its own and opens it.
func workspace(t testing.TB, tr tree) (*Workspace, string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tr.plant(t, base)
	return open(t, base), base
}
