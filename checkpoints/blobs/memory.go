package blobs

import (
	"bytes"
	"sync"
)

// memory is a store's contents where it has no directory: each is its frames.
type memory struct {
	mu       sync.Mutex
	contents map[Digest][]byte
	bytes    int64
}

// Memory returns a store that keeps its contents in memory.
func Memory() *Store {
	s := Open(nil)
	s.memory = &memory{contents: map[Digest][]byte{}}
	return s
}

func (m *memory) get(d Digest) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.contents[d]
	return b, ok
}

func (m *memory) put(c *codec, d Digest, size int64, r interface{ Read([]byte) (int, error) }) error {
	if _, ok := m.get(d); ok {
		return nil
	}
	var frames bytes.Buffer
	if err := c.writeParts(&frames, d, size, r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.contents[d]; !ok {
		m.contents[d] = bytes.Clone(frames.Bytes())
		m.bytes += int64(frames.Len())
	}
	return nil
}

func (m *memory) read(c *codec, d Digest, limit int64, yield func(size int64, part []byte) error) error {
	b, ok := m.get(d)
	if !ok {
		return ErrMissing
	}
	return c.read(bytes.NewReader(b), 0, int64(len(b)), d, limit, yield)
}

func (m *memory) stats() (int, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.contents), m.bytes
}

func (m *memory) collect(live func(Digest) bool, dryRun bool) Collected {
	m.mu.Lock()
	defer m.mu.Unlock()
	var freed Collected
	for d, b := range m.contents {
		if live(d) {
			continue
		}
		freed.Blobs++
		freed.Bytes += int64(len(b))
		if !dryRun {
			delete(m.contents, d)
			m.bytes -= int64(len(b))
		}
	}
	return freed
}
