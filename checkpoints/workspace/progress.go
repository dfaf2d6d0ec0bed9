package workspace

import "sync"

// step is after how many files progress is told: often enough for a person,
// seldom enough to cost nothing.
const step = 500

// throttle passes a growing count on, by one goroutine at a time.
func throttle(f func(done int)) func(done int) {
	var mu sync.Mutex
	told := 0
	return func(done int) {
		mu.Lock()
		defer mu.Unlock()
		if done >= told+step {
			told = done
			f(done)
		}
	}
}

// throttle2 does so for a count whose end is known.
func throttle2(f func(done, total int)) func(done, total int) {
	var mu sync.Mutex
	told := 0
	return func(done, total int) {
		mu.Lock()
		defer mu.Unlock()
		if done >= told+step || done == total {
			told = done
			f(done, total)
		}
	}
}
