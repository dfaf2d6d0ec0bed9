package checkpoints

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// each calls f for 0 … n-1, several at a time where there are many, and then
// in the order of their paths, so that neighbours share a directory that is open.
func each(n int, path func(i int) string, f func(h *handle, i int)) {
	workers := min(runtime.GOMAXPROCS(0), 8)
	if n < 64 || workers < 2 {
		for i := range n {
			f(nil, i)
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
	const share = 32 // at a time: enough that a directory stays open for a while
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			h := &handle{}
			defer h.close()
			for {
				from := int(next.Add(share)) - share
				if from >= n {
					return
				}
				for _, i := range order[from:min(from+share, n)] {
					f(h, i)
				}
			}
		})
	}
	wg.Wait()
}
