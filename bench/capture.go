package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/oino-dev/oinod/bench/rivals"
)

// settled is how long after a change a time stamp tells of the next one: what
// is younger is read again by everybody.
const settled = time.Second

// measureCapture captures a whole tree: first from nothing, then with nothing
// changed. A capture's time is that of the user entry that needs it, from the
// request to the answer.
func measureCapture(l *lab) ([]result, error) {
	if err := l.needWorkspace(); err != nil {
		return nil, err
	}
	files := l.size(50_000, 2_000)
	dir, err := l.temp("capture")
	if err != nil {
		return nil, err
	}
	t, err := newTree(filepath.Join(dir, "work"), files, 6<<10)
	if err != nil {
		return nil, err
	}

	// The first capture: from session/new to the first user entry answered.
	empty := func(round int) (float64, error) {
		p, err := l.serve(filepath.Join(dir, "agent"+strconv.Itoa(round)))
		if err != nil {
			return 0, err
		}
		defer p.abandon()
		took, err := l.timed(func() error {
			session, err := p.newSession(t.dir, "workspace")
			if err == nil {
				_, err = p.user(session, 1)
			}
			return err
		})
		return took.Seconds(), err
	}
	repository := func(round int) (float64, error) {
		g := rivals.Git{Tree: t.dir, Dir: filepath.Join(dir, "repository"+strconv.Itoa(round)), Env: l.env}
		if err := g.Init(); err != nil {
			return 0, err
		}
		took, err := l.timed(g.AddAll)
		return took.Seconds(), err
	}
	first, added, err := l.turns(inSeconds, empty, repository)
	if err != nil {
		return nil, err
	}

	// Again, with nothing changed.
	g := rivals.Git{Tree: t.dir, Env: l.env}
	for _, f := range []func() error{g.Init, g.AddAll, g.Commit, g.Status} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	p, err := l.serve(filepath.Join(dir, "agent"))
	if err != nil {
		return nil, err
	}
	defer p.abandon()
	session, err := p.newSession(t.dir, "workspace")
	if err != nil {
		return nil, err
	}
	for turn := range 2 { // the second finds every time stamp settled
		if _, err := p.user(session, turn); err != nil {
			return nil, err
		}
		time.Sleep(settled)
	}
	usual := &sample{Unit: inSeconds}
	again, status, err := l.turns(inSeconds, func(round int) (float64, error) {
		took, err := l.timed(func() error { _, err := p.user(session, 100+round); return err })
		return took.Seconds(), err
	}, func(round int) (float64, error) {
		took, err := l.timed(func() error { return g.Checkpoint(strconv.Itoa(round)) })
		if err != nil {
			return 0, err
		}
		usual.addTime(took)
		took, err = l.timed(g.Status)
		return took.Seconds(), err
	})
	if err != nil {
		return nil, err
	}
	what := "workspace capture, nothing changed, " + thousands(files) + " files"
	return []result{
		{What: what, Beside: "git status --porcelain", Ours: again, Rival: status, Ratio: ratios(status, again), Goal: atLeast(1)},
		{What: what, Beside: "the usual git checkpoint", Ours: again, Rival: usual, Ratio: ratios(usual, again), Goal: atLeast(10)},
		{What: "first workspace capture, " + thousands(files) + " files of 6 KiB", Beside: "git add -A into an empty repository",
			Ours: first, Rival: added, Ratio: ratios(added, first), Goal: atLeast(2)},
	}, nil
}

// captureOnce is the time of a capture of n files with nothing changed.
func captureOnce(l *lab, n int) (float64, error) {
	dir, err := l.temp("capture")
	if err != nil {
		return 0, err
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return 0, err
	}
	if _, err := newTree(work, n, 1024); err != nil {
		return 0, err
	}
	p, err := l.serve(filepath.Join(dir, "agent"))
	if err != nil {
		return 0, err
	}
	defer p.abandon()
	session, err := p.newSession(work, "workspace")
	if err != nil {
		return 0, err
	}
	for turn := range 2 {
		if _, err := p.user(session, turn); err != nil {
			return 0, err
		}
		time.Sleep(settled)
	}
	s := &sample{Unit: inSeconds}
	for turn := range 5 {
		took, err := l.timed(func() error { _, err := p.user(session, 10+turn); return err })
		if err != nil {
			return 0, err
		}
		s.addTime(took)
	}
	return s.median(), nil
}
