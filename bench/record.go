package main

import (
	"fmt"
	"path/filepath"
)

// side is one of those that record the same turns.
type side struct {
	peer    *peer
	session string
	at      int // paths in one request
	seed    bool
	turns   *sample
}

// fill records paths in the quickest way: nobody measures it.
func (s *side) fill(paths []string) error {
	method := "_oino/record"
	if s.seed {
		method = "_bench/fill"
	}
	_, err := s.peer.call(method, map[string]any{"sessionId": s.session, "paths": paths})
	return err
}

// measureRecord records the same files, changed at every turn, with oinod (one
// path a request, pipelined; and all in one request) and with the seed, turn
// by turn. What is measured begins with the first byte of the first request
// and ends with the last answer. The seed rewrites its index for every path,
// whatever the requests look like.
//
// The seed's time for a record grows with its index, so it would take most of
// a minute to show with --quick what it is on the average of all turns; there
// only the turns in the middle, which are that average, are measured.
func measureRecord(l *lab) ([]result, error) {
	const turns, files = 100, 200
	from, to := 0, turns
	if l.quick {
		from, to = turns/2-1, turns/2+1
	}
	sides, ended, err := recordTurns(l, from, to, files)
	if err != nil {
		return nil, err
	}
	piped, whole, seed := sides[0].turns, sides[1].turns, sides[2].turns
	n := min(1000/files, len(piped.Values)) // turns in a thousand records
	// Of so few turns the fastest tells most: noise only adds.
	first, _ := sampleOf(inSeconds, piped.Values[:n]...).spread()
	last, _ := sampleOf(inSeconds, piped.Values[len(piped.Values)-n:]...).spread()
	what := thousands(turns) + " checkpoints × " + thousands(files) + " files × 4 KiB recorded, durable, "
	if l.quick {
		what = fmt.Sprintf("checkpoints %d to %d of %d × %d files × 4 KiB recorded, durable, ", from+1, to, turns, files)
	}
	const beside = "the seed algorithm, no sync"
	results := []result{
		{What: what + "one path a request, pipelined", Beside: beside, Ours: total(piped), Rival: total(seed), Ratio: ratios(total(seed), total(piped)), Goal: atLeast(10)},
		{What: what + "all paths in one request", Beside: beside, Ours: total(whole), Rival: total(seed), Ratio: ratios(total(seed), total(whole)), Goal: atLeast(50)},
		{What: "the ends of these turns: all files read once more for what the agent left", Beside: "nothing: the seed does not know it", Ours: total(ended)},
	}
	if !l.quick {
		results = append(results, result{
			What: "the last thousand of these records, one path a request", Beside: "the first thousand", Note: "the fastest of 5 turns",
			Ours: sampleOf(inSeconds, last), Rival: sampleOf(inSeconds, first), Ratio: sampleOf(inTimes, last/first), Goal: atMost(1.25),
		})
	}
	return results, nil
}

// total is the time of all turns together. Turns are the rounds here, and come
// in turns themselves; their sum is what a session costs.
func total(turns *sample) *sample { return sampleOf(turns.Unit, turns.sum()) }

// recordTurns lets every side record turn after turn; those before from are
// not measured.
func recordTurns(l *lab, from, to, files int) (sides []*side, ends *sample, err error) {
	dir, err := l.temp("record")
	if err != nil {
		return nil, nil, err
	}
	t, err := newTree(filepath.Join(dir, "work"), files, 4096)
	if err != nil {
		return nil, nil, err
	}
	for i, at := range []int{1, files, 1} {
		var p *peer
		switch i {
		case 2:
			p, err = startPeer(l.child("seed", filepath.Join(dir, "seed")))
		default:
			p, err = l.serve(filepath.Join(dir, fmt.Sprint("agent", i)))
		}
		if err != nil {
			return nil, nil, err
		}
		defer p.abandon()
		s := &side{peer: p, at: at, seed: i == 2, turns: &sample{Unit: inSeconds}}
		if s.session, err = p.newSession(t.dir, ""); err != nil {
			return nil, nil, err
		}
		sides = append(sides, s)
	}
	ends = &sample{Unit: inSeconds}
	for turn := range to {
		for _, s := range sides {
			if _, err := s.peer.user(s.session, turn); err != nil {
				return nil, nil, err
			}
			if turn < from {
				if err := s.fill(t.paths); err != nil {
					return nil, nil, err
				}
				continue
			}
			lines, err := s.peer.records(s.session, t.paths, s.at)
			if err != nil {
				return nil, nil, err
			}
			took, err := l.timed(func() error { return s.peer.pipeline(lines) })
			if err != nil {
				return nil, nil, err
			}
			s.turns.addTime(took)
		}
		if err := t.change(); err != nil {
			return nil, nil, err
		}
		if turn < from {
			continue // the next prompt ends the turn
		}
		for i, s := range sides {
			took, err := l.timed(func() error { return s.peer.turnEnd(s.session) })
			if err != nil {
				return nil, nil, err
			}
			if i == 0 && turn >= from {
				ends.addTime(took)
			}
		}
	}
	return sides, ends, nil
}
