package checkpoints

import (
	"golang.org/x/sys/unix"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// syncerOf returns what makes all that was written in a root durable in one
// go, where there is such a thing: on a disk of the system itself.
func syncerOf(d disk.Root) (sync func() error, ok bool) {
	type descriptor interface{ Fd() uintptr }
	dir, err := d.OpenFile(".", openDir, 0)
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	if _, ok := dir.(descriptor); !ok {
		return nil, false
	}
	return func() error {
		dir, err := d.OpenFile(".", openDir, 0)
		if err != nil {
			return err
		}
		defer dir.Close()
		return unix.Syncfs(int(dir.(descriptor).Fd()))
	}, true
}
