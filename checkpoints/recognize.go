package checkpoints

import (
	"fmt"
	"hash/fnv"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// FileStamp is the State.Stamp of a file that a stat describes, its mode as in
// a State; 0 where the system tells no ctime, which alone nobody can set back.
func FileStamp(mode uint32, size, mtime, ctime int64, ino uint64) uint64 {
	if ctime == 0 || ino == 0 {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintln(h, mode, size, mtime, ctime, ino)
	return max(h.Sum64(), 1)
}

// Recognize is for a file too large to keep whose digest nobody took, to save
// the time. If what is at the resolved path is still that very file, and has
// not changed since, it is read, and returned is the state with its digest.
func (w *Workspace) Recognize(path string, s State) (State, bool) {
	if s.Reason != TooLarge || s.Stamp == 0 || s.Digest != (blobs.Digest{}) {
		return s, false
	}
	p, err := w.locate(path)
	if err != nil {
		return s, false
	}
	is := func(v view) bool {
		return v.state.Kind == File && v.info != nil &&
			FileStamp(modeOf(v.info), v.info.Size(), v.info.ModTime().UnixNano(), changeTime(v.info), identOf(v.info).ino) == s.Stamp
	}
	if v, err := p.view(nil, nil, nil); err != nil || !is(v) {
		return s, false
	}
	v, err := p.view(nil, nil, digest)
	if err != nil || !is(v) {
		return s, false
	}
	s.Digest = v.state.Digest
	return s, true
}
