package rpc

import "time"

// A client may send faster than its requests can be done. What waits is
// bounded, by number and by bytes; what happens at the bound serves the
// client that merely pipelines as well as the one that needs to be heard:
//
//   - As long as requests get done, the reader waits for room, and the client
//     with it, in its write. Nothing is refused.
//   - While a request waits for the client (a hook, a menu) or when none got
//     done for a while, the reader goes on, since the answer or the cancel
//     that would help may be next. Requests for which there is no room are
//     then refused; answers and cancels need none.
const (
	maxWaiting      = 65536
	maxWaitingBytes = 256 << 20
	patience        = 10 * time.Second
)

// backlog counts what was taken and is not answered.
type backlog struct {
	requests, maxRequests int
	bytes, maxBytes       int
	patience              time.Duration

	asking  int           // requests that wait for the client
	stalled bool          // patience ran out, and nothing got done since
	changed chan struct{} // closed when waiting may be over; nil where nobody waits
}

func newBacklog() backlog {
	return backlog{maxRequests: maxWaiting, maxBytes: maxWaitingBytes, patience: patience}
}

// fits reports whether there is room for one more of size bytes. One alone
// always fits: the line's own limit has judged it.
func (b *backlog) fits(size int) bool {
	return b.requests == 0 || b.requests < b.maxRequests && b.bytes+size <= b.maxBytes
}

func (b *backlog) wake() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// release gives the room of a request back.
func (b *backlog) release(size int) {
	b.requests--
	b.bytes -= size
	b.stalled = false
	b.wake()
}

// admit makes room for one more request of size bytes, waiting for it if that
// can help. False: refuse it.
func (d *dispatcher) admit(size int) bool {
	for {
		var admitted, refused bool
		var changed chan struct{}
		d.update(func(*dispatchState) {
			switch b := &d.room; {
			case b.fits(size):
				b.requests++
				b.bytes += size
				admitted = true
			case b.asking > 0 || b.stalled:
				refused = true
			default:
				if b.changed == nil {
					b.changed = make(chan struct{})
				}
				changed = b.changed
			}
		})
		if admitted || refused {
			return admitted
		}
		timer := time.NewTimer(d.room.patience)
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
			d.update(func(*dispatchState) { d.room.stalled = d.room.changed == changed })
		}
	}
}
