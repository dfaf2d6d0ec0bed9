package checkpoints

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// each calls f for 0 … n-1, several at a time where there are many. Each worker
// then goes by the order of their paths, so that neighbours share a directory that
// is open.
func each(n int, path func(i int) string, f func(h *handle, i int)) {
	workers := min(runtime.GOMAXPROCS(0), 8)
	if n < 64 || workers < 2 {
		h := &handle{}
		defer h.close()
		for i := range n {
			f(h, i)
		}
		return
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if !slices.IsSortedFunc(order, func(i, j int) int { return cmp.Compare(path(i), path(j)) }) {
		slices.SortFunc(order, func(i, j int) int { return cmp.Compare(path(i), path(j)) })
	}
	// Each worker goes through a stretch of its own, for two in one directory wait
	// for each other; who is done helps the others.
	const share = 32 // at a time: enough that a directory stays open for a while
	next := make([]atomic.Int64, workers)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			h := &handle{}
			defer h.close()
			for other := range workers {
				stretch := (worker + other) % workers
				first, end := stretch*n/workers, (stretch+1)*n/workers
				for {
					from := first + int(next[stretch].Add(share)) - share
					if from >= end {
						break
					}
					for _, i := range order[from:min(from+share, end)] {
						f(h, i)
					}
				}
			}
		})
	}
	wg.Wait()
}
