package blobs

import (
	"io/fs"
	"os"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// openFiles is how many files stay open for reading. A rewind reads thousands
// of contents from a few segments; a process has few descriptors.
const openFiles = 16

// files keeps the files that were read last open.
type files struct {
	root disk.Root

	mu     sync.Mutex
	open   map[string]*openFile
	tick   uint64
	closed bool
}

// openFile is an open file and who uses it. All fields are files.mu's.
type openFile struct {
	file   disk.File
	users  int
	used   uint64 // tick of the last use
	doomed bool   // no name leads here any more: closed by the last user
}

// with calls f with the file name open.
func (c *files) with(name string, f func(disk.File) error) error {
	o, err := c.get(name)
	if err != nil {
		return err
	}
	defer c.put(o)
	return f(o.file)
}

func (c *files) get(name string) (*openFile, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fs.ErrClosed
	}
	c.tick++
	if o := c.open[name]; o != nil {
		o.users++
		o.used = c.tick
		return o, nil
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if c.open == nil {
		c.open = map[string]*openFile{}
	}
	o := &openFile{file: f, users: 1, used: c.tick}
	c.open[name] = o
	c.trim()
	return o, nil
}

func (c *files) put(o *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.users--
	if o.doomed && o.users == 0 {
		o.file.Close()
	}
}

// trim closes the file that was used longest ago, if there are too many.
func (c *files) trim() {
	if len(c.open) <= openFiles {
		return
	}
	oldest := ""
	for name, o := range c.open {
		if o.users == 0 && (oldest == "" || o.used < c.open[oldest].used) {
			oldest = name
		}
	}
	if oldest != "" {
		c.open[oldest].file.Close()
		delete(c.open, oldest)
	}
}

// forget closes name: what it led to has changed or is gone.
func (c *files) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
}

func (c *files) drop(name string) {
	o := c.open[name]
	if o == nil {
		return
	}
	delete(c.open, name)
	if o.users == 0 {
		o.file.Close()
		return
	}
	o.doomed = true
}

// forgetAll closes every file.
func (c *files) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.open {
		c.drop(name)
	}
}

// close closes every file, for good.
func (c *files) close() {
	c.forgetAll()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
