package session

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

var errInjected = errors.New("injected")

// faults are what a faultyRoot is told to do. Its zero value does nothing.
type faults struct {
	mu     sync.Mutex
	n      int
	dieAt  int                        // the n-th change fails, and all after it: the process is dead
	fail   func(op, name string) bool // this one fails
	opened []string                   // logs that were opened
}

// change is asked before everything that changes the disk or makes a change durable.
func (f *faults) change(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.dieAt > 0 && f.n >= f.dieAt || f.fail != nil && f.fail(op, name) {
		return errInjected
	}
	return nil
}

// reads are the logs that were opened since the last call.
func (f *faults) reads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	opened := f.opened
	f.opened = nil
	return opened
}

// open opens dir as a root with these faults.
func (f *faults) open(dir string) (disk.Root, error) {
	r, err := disk.Open(dir)
	if err != nil {
		return nil, err
	}
	return &faultyRoot{r, f}, nil
}

type faultyRoot struct {
	disk.Root
	faults *faults
}

func (r *faultyRoot) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if strings.Contains(filepath.Base(name), logSuffix) {
		r.faults.mu.Lock()
		r.faults.opened = append(r.faults.opened, name)
		r.faults.mu.Unlock()
	}
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f, name, r.faults}, nil
}

func (r *faultyRoot) Rename(from, to string) error {
	if err := r.faults.change("rename", from); err != nil {
		return err
	}
	return r.Root.Rename(from, to)
}

func (r *faultyRoot) Exchange(from, to string) error {
	if err := r.faults.change("exchange", from); err != nil {
		return err
	}
	return r.Root.Exchange(from, to)
}

func (r *faultyRoot) Remove(name string) error {
	if err := r.faults.change("remove", name); err != nil {
		return err
	}
	return r.Root.Remove(name)
}

func (r *faultyRoot) SyncDir(name string) error {
	if err := r.faults.change("syncdir", name); err != nil {
		return err
	}
	return r.Root.SyncDir(name)
}

type faultyFile struct {
	disk.File
	name   string
	faults *faults
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.faults.change("write", f.name); err != nil {
		// As on a full disk: some of it is there.
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.faults.change("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.faults.change("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}
