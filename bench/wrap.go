package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oino-dev/oinod/bench/rivals"
)

// measureWrap puts oinod, and a cat in either direction, between a client and
// an agent that does nothing: how long a message takes longer, and how many
// come through.
func measureWrap(l *lab) ([]result, error) {
	if err := l.needWrap(); err != nil {
		return nil, err
	}
	dir, err := l.temp("wrap")
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	wrapped, err := startPeer(l.command(l.binary, "wrap", "--agent-dir", filepath.Join(dir, "agent"), "--", l.self, childArg, "agent"))
	if err != nil {
		return nil, err
	}
	defer wrapped.abandon()
	in, out, stop, err := rivals.Pipe(l.child("agent"))
	if err != nil {
		return nil, err
	}
	piped := newPeer(in, out)
	defer func() {
		_ = in.Close()
		_ = stop()
	}()
	peers := []*peer{wrapped, piped}
	sessions := make([]string, len(peers))
	for i, p := range peers {
		if _, err := p.initialize(); err != nil {
			return nil, err
		}
		if sessions[i], err = p.newSession(work, ""); err != nil {
			return nil, err
		}
	}

	// A message there and one back, alternately with each; half of what a
	// round trip takes longer is what one message takes longer.
	trips := l.size(5_000, 1_000)
	longer := &sample{Unit: inSeconds}
	ours, rival := &sample{Unit: inSeconds}, &sample{Unit: inSeconds}
	for range l.rounds {
		took := []*sample{{Unit: inSeconds}, {Unit: inSeconds}}
		for range trips {
			for i, p := range peers {
				line, err := p.request("_bench/echo", map[string]any{"sessionId": sessions[i], "text": "as it is"})
				if err != nil {
					return nil, err
				}
				start := time.Now()
				if _, err := p.exchange(line); err != nil {
					return nil, err
				}
				took[i].addTime(time.Since(start))
			}
		}
		ours.add(took[0].median() / 2)
		rival.add(took[1].median() / 2)
		longer.add((took[0].median() - took[1].median()) / 2)
	}

	// A prompt that is answered with a stream of updates: from the request to
	// the last of them. What was said goes to the log at the turn's end, beside
	// what comes next: some 6 ns a byte, which a prompt that follows in no time
	// would meet. Here, as with a person, there is a pause between turns.
	updates := l.size(200_000, 50_000)
	through := func(i int) func(int) (float64, error) {
		return func(int) (float64, error) {
			line, err := peers[i].request("session/prompt", map[string]any{"sessionId": sessions[i], "prompt": []any{
				map[string]any{"type": "text", "text": fmt.Sprintf("stream %d", updates)},
			}})
			if err != nil {
				return 0, err
			}
			time.Sleep(300 * time.Millisecond)
			took, err := l.timed(func() error { return peers[i].stream(line, updates) })
			if err != nil {
				return 0, err
			}
			if _, err := peers[i].answer(); err != nil {
				return 0, err
			}
			return float64(updates) / took.Seconds(), nil
		}
	}
	fast, pipe, err := l.turns(inRate, through(0), through(1))
	if err != nil {
		return nil, err
	}
	return []result{
		{What: "a message forwarded by wrap, p50", Beside: "a pipe through cat", Ours: ours, Rival: rival, Ratio: longer, Goal: atMost(50e-6), Note: "ratio: how much longer"},
		{What: "updates forwarded by wrap", Beside: "a pipe through cat", Ours: fast, Rival: pipe, Ratio: ratios(fast, pipe), Goal: atLeast(0.5)},
	}, nil
}
