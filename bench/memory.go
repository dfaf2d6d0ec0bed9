package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// measureIdle looks at a process that has one session and waits.
func measureIdle(l *lab) ([]result, error) {
	dir, err := l.temp("idle")
	if err != nil {
		return nil, err
	}
	t, err := newTree(filepath.Join(dir, "work"), 10, 4096)
	if err != nil {
		return nil, err
	}
	peak := &sample{Unit: inBytes}
	for round := range l.rounds {
		p, err := l.serve(filepath.Join(dir, fmt.Sprint("agent", round)))
		if err != nil {
			return nil, err
		}
		defer p.abandon()
		if _, err := p.initialize(); err != nil {
			return nil, err
		}
		session, err := p.newSession(t.dir, "")
		if err != nil {
			return nil, err
		}
		if _, err := p.user(session, 1); err != nil {
			return nil, err
		}
		lines, err := p.records(session, t.paths, len(t.paths))
		if err != nil {
			return nil, err
		}
		if err := p.pipeline(lines); err != nil {
			return nil, err
		}
		m, err := peakMemory(p.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		peak.add(m)
	}
	return []result{{What: "peak memory, idle after a first record", Ours: peak, Ratio: peak, Goal: atMost(30 << 20)}}, nil
}

// measureTracked looks at a process that has captured a large workspace.
func measureTracked(l *lab) ([]result, error) {
	if err := l.needWorkspace(); err != nil {
		return nil, err
	}
	files := l.size(100_000, 5_000)
	dir, err := l.temp("tracked")
	if err != nil {
		return nil, err
	}
	t, err := newTree(filepath.Join(dir, "work"), files, 1024)
	if err != nil {
		return nil, err
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
	for turn := range 3 {
		if _, err := p.user(session, turn); err != nil {
			return nil, err
		}
	}
	m, err := peakMemory(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	peak := sampleOf(inBytes, m)
	return []result{{What: "peak memory, " + thousands(files) + " files tracked", Ours: peak, Ratio: peak, Goal: atMost(200 << 20)}}, nil
}

// longLog holds a conversation until its log has size bytes, and closes it.
func longLog(l *lab, dir string, size int) (agentDir, cwd, session string, err error) {
	agentDir, cwd = filepath.Join(dir, "agent"), filepath.Join(dir, "work")
	if err := os.MkdirAll(cwd, 0o755); err != nil {
		return "", "", "", err
	}
	p, err := l.serve(agentDir)
	if err != nil {
		return "", "", "", err
	}
	defer p.abandon()
	if session, err = p.newSession(cwd, ""); err != nil {
		return "", "", "", err
	}
	const perEntry, perRequest = 16 << 10, 50
	content := string(text(1, perEntry))
	var entries []any
	for i := range perRequest {
		role := "assistant"
		if i%10 == 0 {
			role = "user"
		}
		entries = append(entries, map[string]any{"role": role, "content": content})
	}
	for written := 0; written < size; written += perEntry * perRequest {
		if _, err := p.call("_oino/append", map[string]any{"sessionId": session, "entries": entries}); err != nil {
			return "", "", "", err
		}
	}
	return agentDir, cwd, session, p.stop()
}

// measureLoaded looks at a process that has opened one long log.
func measureLoaded(l *lab) ([]result, error) {
	size := l.size(1<<30, 16<<20)
	dir, err := l.temp("loaded")
	if err != nil {
		return nil, err
	}
	agentDir, cwd, session, err := longLog(l, dir, size)
	if err != nil {
		return nil, err
	}
	opened, replayed := &sample{Unit: inBytes}, &sample{Unit: inBytes}
	for range min(l.rounds, 2) { // a long log takes a while
		for _, way := range []struct {
			method string
			peak   *sample
		}{{"session/resume", opened}, {"session/load", replayed}} {
			p, err := l.serve(agentDir)
			if err != nil {
				return nil, err
			}
			defer p.abandon()
			if _, err := p.call(way.method, map[string]any{"sessionId": session, "cwd": cwd, "mcpServers": []any{}}); err != nil {
				return nil, err
			}
			m, err := peakMemory(p.cmd.Process.Pid)
			if err != nil {
				return nil, err
			}
			way.peak.add(m)
			if err := p.stop(); err != nil {
				return nil, err
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil { // large, and few files
		return nil, err
	}
	what := fmt.Sprintf("peak memory, one log of %s ", format(inBytes, float64(size)))
	return []result{
		{What: what + "opened", Ours: opened, Ratio: opened, Goal: atMost(150 << 20)},
		{What: what + "loaded and replayed", Ours: replayed, Ratio: replayed, Goal: atMost(150 << 20)},
	}, nil
}
