package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oino-dev/oinod/bench/rivals"
)

// rewound is a session whose files are changed and rewound again and again.
type rewound struct {
	l       *lab
	dir     string
	tree    *tree
	peer    *peer
	session string
	turn    int
}

func newRewound(l *lab, files int) (r *rewound, done func(), err error) {
	dir, clean, err := l.temp("rewind")
	if err != nil {
		return nil, nil, err
	}
	r = &rewound{l: l, dir: dir}
	if r.tree, err = newTree(filepath.Join(dir, "work"), files, 4096); err != nil {
		return nil, nil, err
	}
	if r.peer, err = l.serve(filepath.Join(dir, "agent")); err != nil {
		return nil, nil, err
	}
	done = func() {
		r.peer.abandon()
		clean()
	}
	if r.session, err = r.peer.newSession(r.tree.dir, ""); err != nil {
		done()
		return nil, nil, err
	}
	return r, done, nil
}

// rewind lets a turn change every file, and measures the way back.
func (r *rewound) rewind() (time.Duration, error) {
	r.turn++
	id, err := r.peer.user(r.session, r.turn)
	if err != nil {
		return 0, err
	}
	lines, err := r.peer.records(r.session, r.tree.paths, 200)
	if err != nil {
		return 0, err
	}
	if err := r.peer.pipeline(lines); err != nil {
		return 0, err
	}
	if err := r.tree.change(); err != nil {
		return 0, err
	}
	if err := r.peer.turnEnd(r.session); err != nil {
		return 0, err
	}
	var answer json.RawMessage
	took, err := r.l.timed(func() (err error) {
		answer, err = r.peer.call("_oino/rewind", map[string]any{"sessionId": r.session, "entryId": id})
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
	if len(back.Restored) != len(r.tree.paths) {
		return 0, fmt.Errorf("%d of %d files came back: %.200s", len(back.Restored), len(r.tree.paths), answer)
	}
	return took, nil
}

// copied measures cp -r of the same files, and the sync that makes the copy as
// durable as a rewind is.
func (r *rewound) copied() (copying, syncing time.Duration, err error) {
	to := filepath.Join(r.dir, "copy")
	if copying, err = r.l.timed(func() error { return rivals.Copy(r.tree.dir, to) }); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	r.l.settle()
	syncing = time.Since(start)
	return copying, syncing, os.RemoveAll(to)
}

// measureRewind rewinds a turn that changed every file. Each is compared with
// what the agent left, saved for redo, staged and replaced; the answer is durable.
func measureRewind(l *lab) ([]result, error) {
	files := l.size(10_000, 2_000)
	r, done, err := newRewound(l, files)
	if err != nil {
		return nil, err
	}
	defer done()
	durable := &sample{Unit: inSeconds}
	ours, plain, err := l.turns(inSeconds, func(int) (float64, error) {
		took, err := r.rewind()
		return took.Seconds(), err
	}, func(int) (float64, error) {
		copying, syncing, err := r.copied()
		durable.addTime(copying + syncing)
		return copying.Seconds(), err
	})
	if err != nil {
		return nil, err
	}
	what := "rewind of " + thousands(files) + " changed files of 4 KiB"
	return []result{
		{What: what, Beside: "cp -r of the same files, no sync", Ours: ours, Rival: plain, Ratio: ratios(ours, plain), Goal: atMost(1.5)},
		{What: what, Beside: "cp -r of the same files, then sync", Ours: ours, Rival: durable, Ratio: ratios(ours, durable)},
	}, nil
}
