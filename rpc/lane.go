package rpc

import "sync"

// maxLaneBytes bounds what waits in all lanes. A single line always fits.
const maxLaneBytes = 64 << 20

// lane holds back what the agent says of one session while something has to
// be done before it goes on: other sessions do not wait. One goroutine posts,
// the one that reads.
type lane struct {
	load *load

	mu    sync.Mutex
	items []laneItem
	busy  bool
}

type laneItem struct {
	size int
	do   func()
}

// isIdle reports whether nothing is held. Only the goroutine that posts may
// rely on it.
func (l *lane) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy
}

// post does f after what is held. It blocks while all lanes are full.
func (l *lane) post(size int, f func()) {
	l.load.take(size)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, laneItem{size, f})
	if !l.busy {
		l.busy = true
		l.load.work.Go(l.run)
	}
}

// run works the lane off, and ends when it is empty.
func (l *lane) run() {
	for {
		l.mu.Lock()
		if len(l.items) == 0 {
			l.busy, l.items = false, nil
			l.mu.Unlock()
			return
		}
		item := l.items[0]
		l.items[0] = laneItem{}
		l.items = l.items[1:]
		l.mu.Unlock()
		item.do()
		l.load.give(item.size)
	}
}

// load is how much waits in all lanes.
type load struct {
	work sync.WaitGroup // every lane's goroutine

	mu    sync.Mutex
	freed sync.Cond // L is mu
	bytes int
}

func newLoad() *load {
	l := &load{}
	l.freed.L = &l.mu
	return l
}

func (l *load) take(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes > 0 && l.bytes+size > maxLaneBytes {
		l.freed.Wait()
	}
	l.bytes += size
}

func (l *load) give(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= size
	l.freed.Broadcast()
}
