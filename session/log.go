package session

import (
	"fmt"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// maxLine bounds one line of a log: the largest message with room for its
// escapes, or the plan of a very large rewind.
const maxLine = 512 << 20

// log is where a session's records go: a file, or memory.
type log interface {
	// Append makes objects durable, all or none, in order.
	Append(objects ...[]byte) ([]journal.Pos, error)
	ReadAt(pos journal.Pos) ([]byte, error)
	// Broken is why nothing can be appended any more, or nil.
	Broken() error
	Close() error
}

// memoryLog is the log of a session that is kept in memory only.
type memoryLog struct {
	mu      sync.Mutex
	objects [][]byte
}

func (l *memoryLog) Append(objects ...[]byte) ([]journal.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pos := make([]journal.Pos, len(objects))
	for i, o := range objects {
		pos[i] = journal.Pos{Offset: int64(len(l.objects)), Length: len(o)}
		l.objects = append(l.objects, o)
	}
	return pos, nil
}

func (l *memoryLog) ReadAt(pos journal.Pos) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pos.Offset < 0 || pos.Offset >= int64(len(l.objects)) {
		return nil, fmt.Errorf("no record %d", pos.Offset)
	}
	return l.objects[pos.Offset], nil
}

func (l *memoryLog) Broken() error { return nil }
func (l *memoryLog) Close() error  { return nil }
