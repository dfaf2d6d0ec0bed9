package checkpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

// WorkspaceKey names a working directory in the agent directory: readable, safe
// as a file name, and the same for every spelling of the directory.
func WorkspaceKey(cwd string) string {
	real := realPath(cwd)
	sum := sha256.Sum256([]byte(real))
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, filepath.Base(real))
	if len(name) > 40 {
		name = name[:40]
	}
	return name + "-" + hex.EncodeToString(sum[:8])
}

// SameDir reports whether a and b spell one directory.
func SameDir(a, b string) bool {
	return filepath.Clean(a) == filepath.Clean(b) || realPath(a) == realPath(b)
}
