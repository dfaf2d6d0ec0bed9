//go:build unix

package workspace

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

func TestWhatIsNoFileIsNamedAndNeverOpened(t *testing.T) {
	dir := t.TempDir()
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "s", dir)
	put(t, dir, map[string]string{"a": "1"})
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	require.NoError(t, err)
	defer l.Close()
	bad := filepath.Join(dir, "b\xffd")
	require.NoError(t, os.WriteFile(bad, nil, 0o600))
	c := captured(t, w, CaptureOptions{})
	require.Equal(t, []Uncovered{
		{Path: filepath.Join(dir, `b\xffd`), Reason: checkpoints.BadName},
		{Path: filepath.Join(dir, "fifo"), Reason: checkpoints.NotRegular},
		{Path: filepath.Join(dir, "sock"), Reason: checkpoints.NotRegular},
	}, c.Uncovered)
	again := captured(t, w, CaptureOptions{})
	require.Equal(t, c.Uncovered, again.Uncovered)
	require.Empty(t, changes(t, w, c.Mark, again.Mark))

	// A FIFO that takes a file's place between the look and the opening.
	h := &hooked{}
	b := onDisk(disktest.New(), func(c *Config) { c.machine = h })
	v := b.open(t, "s", dir)
	h.open = func(rel string) error {
		if rel == "a" {
			require.NoError(t, os.Remove(filepath.Join(dir, "a")))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "a"), 0o600))
			h.open = nil
		}
		return nil
	}
	c = captured(t, v, CaptureOptions{})
	require.Equal(t, uncovered(checkpoints.NotRegular), statesOf(t, v, c.Mark, "a")[0])
}
