//go:build unix

package checkpoints

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mapped is a file whose bytes are written through a mapping. The page is dirty
// already, so that a write changes no time of the file's.
func mapped(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(b) })
	b[0] = b[0] + 0
	b[0]++
	b[0]--
	return b
}

// What is written through a mapping while a rewind is under way shows in no time
// of the file's, and is kept all the same.
func TestAWriteThroughAMappingIsKept(t *testing.T) {
	for _, n := range []int{1, 100} {
		for name, b := range map[string]func(content string) tree{
			"replaced": func(content string) tree { return manyFiles(n, content) },
			"removed":  func(content string) tree { return tree{} },
		} {
			t.Run(name, func(t *testing.T) {
				left := manyFiles(n, "left ")
				w, base := workspace(t, b("v0 "))
				r := turn(t, w, base, b("v0 "), left)
				page := mapped(t, base+"/d0/f0")
				settle(t, base)
				for _, touched := range r.touched { // as the end of a turn does
					_, err := w.Capture(touched.Path)
					require.NoError(t, err)
				}
				in, failed, err := w.Prepare(t.Context(), r.plan(Keep))
				require.NoError(t, err)
				require.Empty(t, failed)
				page[0] = '!'
				o := w.Act(t.Context(), in, false)
				require.Equal(t, map[string]Code{"d0/f0": CodeConflict}, codes(base, o.Failed))
				content, err := os.ReadFile(base + "/d0/f0")
				require.NoError(t, err)
				require.Equal(t, "!eft 0", string(content))
			})
		}
	}
}

// Another name of a file may have been given the mode that it is to have; any
// other change since the look is somebody's.
func TestAModeIsGivenToTheFileThatWasSeen(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, base string)
		err    error
	}{
		"nothing":                      {func(*testing.T, string) {}, nil},
		"the mode, by another name":    {func(t *testing.T, base string) { require.NoError(t, os.Chmod(base+"/other", 0o755)) }, nil},
		"another mode":                 {func(t *testing.T, base string) { require.NoError(t, os.Chmod(base+"/other", 0o700)) }, ErrAppeared},
		"a file in its place":          {func(t *testing.T, base string) { replaceBy(t, base+"/f", file("same")) }, ErrAppeared},
		"a link in its place":          {func(t *testing.T, base string) { replaceBy(t, base+"/f", link("else")) }, ErrAppeared},
		"a dangling link":              {func(t *testing.T, base string) { replaceBy(t, base+"/f", link("none")) }, ErrAppeared},
		"nothing any more":             {func(t *testing.T, base string) { require.NoError(t, os.Remove(base+"/f")) }, ErrAppeared},
		"a pipe that nobody writes to": {func(t *testing.T, base string) { replaceBy(t, base+"/f", fifo()) }, ErrAppeared},
	} {
		for _, held := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				w, base := workspace(t, tree{"f": file("same"), "else": file("same")})
				require.NoError(t, os.Link(base+"/f", base+"/other"))
				p, err := w.locate(base + "/f")
				require.NoError(t, err)
				h := &handle{}
				defer h.close()
				if held {
					p, err = h.enter(p)
					require.NoError(t, err)
				}
				v, err := p.viewSelf(digest)
				require.NoError(t, err)
				c.change(t, base)
				require.ErrorIs(t, p.chmod(v, 0o755), c.err)
			})
		}
	}
}

func replaceBy(t *testing.T, at, what string) {
	t.Helper()
	require.NoError(t, os.Rename(at, at+".was")) // its inode stays in use
	plantOne(t, at, what)
}
