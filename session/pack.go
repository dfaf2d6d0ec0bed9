package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// A log that nobody has written to for a while is packed: compressed as a
// whole, as <name>.jsonl.zst in the place of <name>.jsonl. It is listed and
// shown as it is, and unpacked when the session is opened for writing.
//
// There may be both for a moment, and after a crash for longer. Then they hold
// the same, or the plain one holds more: each is complete when it gets its
// name, the packed one is never written to, and the plain one is only removed
// when the packed one's name is durable. So the plain one is the truth where
// there is one, and the next writer or packer removes the other.
//
//	packing:   write aside, sync, read back and compare   without a lock
//	           rename, sync the name, remove the plain    under the session's lock
//	unpacking: write aside, sync, rename, sync the name,
//	           remove the packed                          under the session's lock
//
// That a log did not change while it was read without its lock is seen in its
// size and mtime under the lock: it only ever grows. One packer works in an
// agent directory at a time, so that what it finds unfinished is a crash's.
//
// Both change names under a hold of the blob store: Collect, which lists the
// logs while nobody holds, never misses one on its way from form to form.
const (
	packWindow = 4 << 20 // bytes; what reading a packed log takes in memory
	packLock   = "sessions/pack" + lockSuffix
	tempSuffix = ".tmp"
)

// Packed is what Pack did.
type Packed struct {
	Sessions      int
	Before, After int64 // bytes
}

// Pack compresses the logs that nobody has written to for idle and that nobody
// holds open. Where another process is at it, nothing is done.
func (r *Registry) Pack(ctx context.Context, idle time.Duration) (Packed, error) {
	root, store, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return Packed{}, nil
	}
	if err != nil {
		return Packed{}, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	dirs, err := workspaceDirs(root)
	if err != nil || len(dirs) == 0 {
		return Packed{}, err
	}
	lock, err := journal.TryLock(path.Join(root.Name(), packLock))
	if _, ok := errors.AsType[*journal.LockedError](err); ok {
		return Packed{}, nil
	}
	if err != nil {
		return Packed{}, storageError("idle logs cannot be compressed", err)
	}
	defer lock.Unlock()
	k := packer{root: root, store: store, before: r.now().Add(-idle)}
	for _, dir := range dirs {
		if err := k.pack(ctx, dir); err != nil {
			return k.done, storageError("idle logs cannot be compressed", err)
		}
	}
	return k.done, nil
}

type packer struct {
	root   disk.Root
	store  *blobs.Store
	before time.Time // logs written to later are left alone
	done   Packed
}

// pack packs the idle logs of one directory.
func (k *packer) pack(ctx context.Context, dir string) error {
	files, err := disk.ReadDir(k.root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if bytes.HasSuffix([]byte(f.Name()), []byte(packedSuffix+tempSuffix)) {
			if err := k.root.Remove(path.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		p, packed, ok := placeOf(dir, f.Name())
		if !ok || packed || !f.Type().IsRegular() {
			continue
		}
		info, err := k.root.Lstat(p.log())
		if err != nil || info.ModTime().After(k.before) {
			continue
		}
		if err := k.packLog(ctx, p, info); err != nil {
			return err
		}
	}
	return nil
}

// packLog packs one log, unless somebody has it open or it is not whole: of a
// damaged or newer one no byte is moved.
func (k *packer) packLog(ctx context.Context, p place, was fs.FileInfo) error {
	lock, err := takeLock(k.root, p)
	if err != nil {
		return nil
	}
	if err := lock.Unlock(); err != nil { // it is only asked for, what follows takes long
		return err
	}
	temp := p.packed() + tempSuffix
	size, err := k.writePacked(ctx, p, temp)
	if err == nil {
		err = k.compare(ctx, p, temp)
	}
	if err == nil {
		setTime(k.root, temp, was.ModTime())
		err = k.swap(p, temp, was)
	}
	if err != nil {
		k.root.Remove(temp)
	}
	if errors.Is(err, errNotPacked) || errors.Is(err, fs.ErrNotExist) {
		return nil // left as it is, or deleted meanwhile
	}
	if err != nil {
		return err
	}
	k.done.Sessions++
	k.done.Before += was.Size()
	k.done.After += size
	return nil
}

// errNotPacked is a log that stays as it is.
var errNotPacked = errors.New("the log is not to be packed")

// writePacked writes what the plain log of p holds to temp, and syncs it.
func (k *packer) writePacked(ctx context.Context, p place, temp string) (size int64, err error) {
	src, err := k.root.OpenFile(p.log(), os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	if err := k.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash's
		return 0, err
	}
	dst, err := k.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
	}()
	if err := dst.Chmod(0o600); err != nil {
		return 0, err
	}
	enc, err := zstd.NewWriter(dst, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return 0, err
	}
	read := bufio.NewReaderSize(io.TeeReader(src, enc), headSize)
	err = judgeVersion(read, p.id())
	if err == nil {
		var tail journal.Tail
		tail, err = journal.Scan(read, maxLine, func(l journal.Line) error {
			if l.Err != nil {
				return l.Err
			}
			return ctx.Err()
		})
		if err == nil && (tail.Torn > 0 || tail.Unclosed || tail.End == 0) {
			err = errNotPacked
		}
	}
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, journal.ErrDamaged) {
		err = errNotPacked
	}
	if cerr := enc.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = dst.Sync()
	}
	if err != nil {
		return 0, err
	}
	info, err := dst.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// compare reads temp back and compares it with the plain log.
func (k *packer) compare(ctx context.Context, p place, temp string) error {
	plain, err := k.root.OpenFile(p.log(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer plain.Close()
	f, err := k.root.OpenFile(temp, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	packed, err := unpack(f)
	if err != nil {
		return err
	}
	defer packed.Close()
	a, b := make([]byte, 256<<10), make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(plain, a)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		m, err := io.ReadFull(packed, b)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("reading back %s: %w", temp, err)
		}
		if !bytes.Equal(a[:n], b[:m]) {
			return errNotPacked // the log has grown: it is not idle
		}
		if ended {
			return nil
		}
	}
}

// swap puts the packed log in the place of the plain one, if that is still as
// it was.
func (k *packer) swap(p place, temp string, was fs.FileInfo) error {
	lock, err := takeLock(k.root, p)
	if err != nil {
		return errNotPacked
	}
	defer lock.Unlock()
	release, err := k.store.Hold()
	if err != nil {
		return err
	}
	defer release()
	now, err := k.root.Lstat(p.log())
	if err != nil {
		return err
	}
	if now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) {
		return errNotPacked
	}
	if err := k.root.Rename(temp, p.packed()); err != nil {
		return err
	}
	if err := k.root.SyncDir(p.dir); err != nil {
		return err
	}
	if err := k.root.Remove(p.log()); err != nil {
		return err
	}
	return k.root.SyncDir(p.dir)
}

// setTime gives name an mtime, so that a log keeps its age when its form
// changes. Where that cannot be done it only looks younger.
func setTime(root disk.Root, name string, t time.Time) {
	if r, ok := root.(interface {
		Chtimes(name string, atime, mtime time.Time) error
	}); ok {
		_ = r.Chtimes(name, t, t)
	}
}

// unpack reads a packed log; f is closed with it.
func unpack(f disk.File) (*logReader, error) {
	d, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(packWindow))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &logReader{Reader: bufio.NewReaderSize(d, headSize), file: f, zstd: d, packed: true}, nil
}

// unpackLog makes the log of p a plain one and the only one. The caller holds
// its lock.
func unpackLog(root disk.Root, store *blobs.Store, p place) error {
	if _, err := root.Lstat(p.packed()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	release, err := store.Hold()
	if err != nil {
		return err
	}
	defer release()
	if _, err := root.Lstat(p.log()); errors.Is(err, fs.ErrNotExist) {
		if err := writeUnpacked(root, p); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := root.SyncDir(p.dir); err != nil {
		return err
	}
	if err := root.Remove(p.packed()); err != nil {
		return err
	}
	return root.SyncDir(p.dir)
}

// writeUnpacked writes the plain log of p from the packed one.
func writeUnpacked(root disk.Root, p place) error {
	f, err := root.OpenFile(p.packed(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	src, err := unpack(f)
	if err != nil {
		return err
	}
	defer src.Close()
	temp := p.log() + tempSuffix
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dst, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = dst.Chmod(0o600)
	if err == nil {
		_, err = io.Copy(dst, readErrors{src})
	}
	if err == nil {
		err = dst.Sync()
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = root.Rename(temp, p.log())
	}
	if err != nil {
		root.Remove(temp)
	}
	return err
}

// readErrors makes what r fails with damage, unlike what writing fails with.
type readErrors struct{ r io.Reader }

func (r readErrors) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: it cannot be unpacked: %w", journal.ErrDamaged, err)
	}
	return n, err
}
