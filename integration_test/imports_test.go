package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/oino-dev/oinod/"

// storey is each package's place in the house; imports only go down. A package
// below one of these that is not named itself stands where its parent stands.
var storey = map[string]int{
	"protocol": 0, "checkpoints/disk": 0, "checkpoints/journal": 1, "checkpoints/blobs": 1,
	"checkpoints": 2, "session": 3, "fork": 4, "rpc": 5, "cmd/oinod": 6,
}

// outside are packages that only some rooms may use, ours or others'.
var outside = map[string][]string{
	"github.com/sourcegraph/jsonrpc2": {"rpc"},
	"github.com/rs/zerolog":           {"rpc", "cmd/oinod"},
	"github.com/spf13/cobra":          {"cmd/oinod"},
	"github.com/google/renameio/v2":   {"checkpoints"},
	"github.com/gofrs/flock":          {"checkpoints"},
}

// source is one file that goes into the binary.
type source struct {
	name string // relative to the module
	pkg  string // its folder
	file *ast.File
}

// sources are all files that go into the binary, read here and now: a go list
// run by the test would not make a cached result stale.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel("..", name)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if base := d.Name(); rel != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules") ||
				rel == "integration_test" || rel == "bench" {
				return filepath.SkipDir // tests and measurements may reach anywhere
			}
			return nil
		case !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		all = append(all, source{rel, path.Dir(rel), f})
		return err
	})
	require.NoError(t, err)
	return all
}

// room is the storey of a package and the room that names it.
func room(pkg string) (name string, height int, ok bool) {
	for name = pkg; name != "."; name = path.Dir(name) {
		if height, ok = storey[name]; ok {
			return name, height, true
		}
	}
	return "", 0, false
}

// importsOf are a file's imports: path → the name it has in the file.
func importsOf(f *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range f.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[p] = name
	}
	return imports
}

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		from, height, ok := room(s.pkg)
		if !ok {
			t.Errorf("%s is in no room of the house", s.name)
			continue
		}
		seen[from] = true
		for p := range importsOf(s.file) {
			if to, ours := strings.CutPrefix(p, module); ours {
				target, below, ok := room(to)
				if !ok {
					t.Errorf("%s imports %s, which is in no room of the house", s.name, to)
				} else if target != from && below >= height {
					t.Errorf("%s imports %s: up or beside", s.name, to)
				}
				if from == "protocol" {
					t.Errorf("%s imports %s: protocol stands alone", s.name, to)
				}
			}
			for only, rooms := range outside {
				if (p == only || strings.HasPrefix(p, only+"/")) && !within(s.pkg, rooms) {
					t.Errorf("%s imports %s: only %v may", s.name, p, rooms)
				}
			}
		}
	}
	for name := range storey {
		require.True(t, seen[name], "no files in %s", name)
	}
}

// within reports whether a package is one of the rooms or below one.
func within(pkg string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(r string) bool { return pkg == r || strings.HasPrefix(pkg, r+"/") })
}

// fileFunctions are those of package os that open, make or change
// files by name. (Asking whether a directory is there opens nothing.)
var fileFunctions = strings.Fields(`Open OpenFile Create CreateTemp MkdirTemp ReadFile WriteFile Remove RemoveAll Rename
	Mkdir MkdirAll Symlink Link Readlink ReadDir Chmod Chown Lchown Chtimes Truncate OpenRoot OpenInRoot DirFS CopyFS`)

// fileOpeners may use them. cmd reads its settings and plays its demo; a
// hook's command is found by its path alone.
var fileOpeners = []string{"checkpoints", "cmd"}

// environmentReaders may read the environment. A hook's command has the
// process's by default, which takes no reading.
var environmentReaders = []string{"cmd"}

func TestOnlyCheckpointsOpensFiles(t *testing.T) {
	uses := func(pkgPath string, names []string, allowed []string, what string) {
		for _, s := range sources(t) {
			local, imported := importsOf(s.file)[pkgPath]
			if !imported || within(s.pkg, allowed) {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
					t.Errorf("%s calls %s.%s: only %v %s", s.name, local, sel.Sel.Name, allowed, what)
				}
				return true
			})
		}
	}
	uses("os", fileFunctions, fileOpeners, "opens files")
	uses("path/filepath", []string{"EvalSymlinks", "Walk", "WalkDir", "Glob"}, fileOpeners, "opens files")
	uses("os", []string{"Getenv", "Environ", "LookupEnv", "ExpandEnv", "UserHomeDir", "Setenv", "Unsetenv"}, environmentReaders, "reads the environment")
}
