package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/oino-dev/oinod/bench/rivals"
)

// rewindOnce lets one turn change n files of a fresh tree, and measures the
// way back.
func rewindOnce(l *lab, n int) (time.Duration, error) {
	dir, err := l.temp("rewind")
	if err != nil {
		return 0, err
	}
	t, err := newTree(filepath.Join(dir, "work"), n, 4096)
	if err != nil {
		return 0, err
	}
	p, err := l.serve(filepath.Join(dir, "agent"))
	if err != nil {
		return 0, err
	}
	defer p.abandon()
	session, err := p.newSession(t.dir, "")
	if err != nil {
		return 0, err
	}
	id, err := p.user(session, 1)
	if err != nil {
		return 0, err
	}
	lines, err := p.records(session, t.paths, 200)
	if err != nil {
		return 0, err
	}
	if err := p.pipeline(lines); err != nil {
		return 0, err
	}
	if err := t.change(); err != nil {
		return 0, err
	}
	if err := p.turnEnd(session); err != nil {
		return 0, err
	}
	var answer json.RawMessage
	took, err := l.timed(func() (err error) {
		answer, err = p.call("_oino/rewind", map[string]any{"sessionId": session, "entryId": id})
		return err
	})
	if err != nil {
		return 0, err
	}
	var back struct {
		Restored []string `json:"restored"`
	}
	if err := json.Unmarshal(answer, &back); err != nil {
		return 0, err
	}
	if len(back.Restored) != n {
		return 0, fmt.Errorf("%d of %d files came back: %.200s", len(back.Restored), n, answer)
	}
	return took, nil
}

// copyOnce measures cp -r of a fresh tree of n files, the sync that makes the
// copy as durable as a rewind is, and what the least is that replaces them all
// so.
func copyOnce(l *lab, n int) (copying, syncing, replacing time.Duration, err error) {
	dir, err := l.temp("copy")
	if err != nil {
		return 0, 0, 0, err
	}
	t, err := newTree(filepath.Join(dir, "work"), n, 4096)
	if err != nil {
		return 0, 0, 0, err
	}
	if copying, err = l.timed(func() error { return rivals.Copy(t.dir, filepath.Join(dir, "copy")) }); err != nil {
		return 0, 0, 0, err
	}
	start := time.Now()
	l.settle()
	syncing = time.Since(start)
	content := text(1, t.size)
	replacing, err = l.timed(func() error { return rivals.Replace(t.paths, func(int) []byte { return content }) })
	return copying, syncing, replacing, err
}

// measureRewind rewinds a turn that changed every file. Each is compared with
// what the agent left, saved for redo, staged and replaced; the answer is durable.
func measureRewind(l *lab) ([]result, error) {
	files := l.size(10_000, 1_000)
	durable, least := &sample{Unit: inSeconds}, &sample{Unit: inSeconds}
	ours, plain, err := l.turns(inSeconds, func(int) (float64, error) {
		took, err := rewindOnce(l, files)
		return took.Seconds(), err
	}, func(int) (float64, error) {
		copying, syncing, replacing, err := copyOnce(l, files)
		durable.addTime(copying + syncing)
		least.addTime(replacing)
		return copying.Seconds(), err
	})
	if err != nil {
		return nil, err
	}
	what := "rewind of " + thousands(files) + " changed files of 4 KiB"
	return []result{
		{What: what, Beside: "cp -r of the same files, no sync", Ours: ours, Rival: plain, Ratio: ratios(ours, plain), Goal: atMost(1.5)},
		{What: what, Beside: "cp -r of the same files, then sync", Ours: ours, Rival: durable, Ratio: ratios(ours, durable)},
		{What: what, Beside: "new files, sync, rename over the old, sync, and nothing else", Ours: ours, Rival: least, Ratio: ratios(ours, least)},
	}, nil
}
