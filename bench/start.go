package main

import (
	"path/filepath"
	"time"

	"github.com/oino-dev/oinod/bench/rivals"
)

// measureStart spawns oinod and says initialize, from the spawn to the answer.
func measureStart(l *lab) ([]result, error) {
	dir, err := l.temp("start")
	if err != nil {
		return nil, err
	}
	agentDir := filepath.Join(dir, "agent")
	start := func() (float64, error) {
		began := time.Now()
		p, err := l.serve(agentDir)
		if err != nil {
			return 0, err
		}
		if _, err := p.initialize(); err != nil {
			return 0, err
		}
		took := time.Since(began)
		return took.Seconds(), p.stop()
	}
	git := rivals.Git{Tree: dir, Env: l.env}
	version := func() (float64, error) {
		began := time.Now()
		err := git.Version()
		return time.Since(began).Seconds(), err
	}
	l.settle()
	// One start is short beside what else happens on a machine: a round is the
	// median of many.
	several := func(f func() (float64, error)) func(int) (float64, error) {
		return func(int) (float64, error) {
			s := &sample{Unit: inSeconds}
			for range 20 {
				v, err := f()
				if err != nil {
					return 0, err
				}
				s.add(v)
			}
			return s.median(), nil
		}
	}
	ours, rival, err := l.turns(inSeconds, several(start), several(version))
	if err != nil {
		return nil, err
	}
	return []result{{
		What: "start to initialize answered", Beside: "git --version",
		Ours: ours, Rival: rival, Ratio: ratios(ours, rival), Goal: atMost(5),
	}}, nil
}
