package checkpoints

import (
	"crypto/sha256"
	"io/fs"
	"time"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// kindOf is the kind of what info is of; Uncovered for what is never opened.
func kindOf(info fs.FileInfo) Kind {
	switch info.Mode().Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Dir
	case fs.ModeSymlink:
		return Symlink
	}
	return Uncovered
}

// modeOf is the mode of info in the bits of stat(2).
func modeOf(info fs.FileInfo) uint32 {
	m := info.Mode()
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// fileMode is the mode of a State as the os package has it.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if bits&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if bits&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// ident says which file of the machine something is; zero where unknown.
type ident struct{ dev, ino uint64 }

// owner is who a file belongs to.
type owner struct{ uid, gid int }

// nobody is the owner where none is known.
var nobody = owner{-1, -1}

// stamp is what a file's change of bytes or mode does not leave alone.
type stamp struct {
	ident
	kind         fs.FileMode
	mode         uint32
	size         int64
	mtime, ctime int64
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{identOf(info), info.Mode().Type(), modeOf(info), info.Size(), info.ModTime().UnixNano(), changeTime(info)}
}

// moved is s without what another name changes.
func (s stamp) moved() stamp {
	s.ctime = 0
	return s
}

// settled reports whether a change after now, a moment before the stamp was
// taken, would show in the stamp: clocks of file systems tick coarsely, some in
// seconds.
func (s stamp) settled(now time.Time) bool {
	last := max(s.mtime, s.ctime)
	tick := 50 * time.Millisecond
	if s.mtime%int64(time.Second) == 0 {
		tick = 2500 * time.Millisecond
	}
	return s.ident != (ident{}) && s.ctime != 0 && now.UnixNano()-last > int64(tick)
}

// sameThing reports whether a and b are of one thing that did not change in
// between. The inode alone does not tell: a new file often gets the old one's.
func sameThing(a, b fs.FileInfo) bool { return stampOf(a) == stampOf(b) }

// sameButMode reports whether a and b are of one file of which at most the mode
// and the other names have changed in between.
func sameButMode(a, b fs.FileInfo) bool {
	x, y := stampOf(a).moved(), stampOf(b).moved()
	x.mode, y.mode = 0, 0
	return x == y
}

// digestOf is the digest of content.
func digestOf(content []byte) blobs.Digest { return sha256.Sum256(content) }
