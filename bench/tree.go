package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"
)

var words = []string{
	"func ", "return ", "if err != nil {\n\t\treturn err\n\t}\n", "}\n\n", "for _, ", " := range ", "ctx context.Context", "string", "(", ")",
	"store.", "Digest", " = ", "nil", "\n\t", "// The ", "state ", "of ", "path", ".Name", "[]byte", "map[string]", "switch ", "case ",
}

// text is size bytes that look, and compress, like source code. Each seed
// gives another one.
func text(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 11))
	b := make([]byte, 0, size+64)
	b = fmt.Appendf(b, "// %016x\n", seed)
	for len(b) < size {
		b = append(b, words[r.IntN(len(words))]...)
		if r.IntN(4) == 0 {
			b = strconv.AppendUint(b, uint64(r.Uint32()), 36)
		}
	}
	return b[:size]
}

// tree is files in a directory, many in each of its directories.
type tree struct {
	dir     string
	paths   []string
	size    int
	version uint64
}

const filesPerDir = 100

// newTree makes n files of size bytes below dir.
func newTree(dir string, n, size int) (*tree, error) {
	t := &tree{dir: dir, size: size}
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("part%03d", i/filesPerDir))
		if i%filesPerDir == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return nil, err
			}
		}
		t.paths = append(t.paths, filepath.Join(sub, fmt.Sprintf("file%05d.go", i)))
	}
	return t, t.change()
}

// change gives every file a content that none has had before.
func (t *tree) change() error {
	t.version++
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, path := range t.paths {
		group.Go(func() error { return os.WriteFile(path, text(t.version<<32|uint64(i), t.size), 0o644) })
	}
	return group.Wait()
}
