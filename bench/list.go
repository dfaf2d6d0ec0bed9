package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oino-dev/oinod/bench/rivals"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// manySessions fills an agent directory with n sessions in twenty workspaces.
// One conversation for each workspace is held with oinod; the others are copies
// of its log under ids of their own.
func manySessions(l *lab, dir string, n int) (agentDir string, err error) {
	const workspaces = 20
	agentDir = filepath.Join(dir, "agent")
	p, err := l.serve(agentDir)
	if err != nil {
		return "", err
	}
	defer p.abandon()
	for w := range min(n, workspaces) {
		cwd := filepath.Join(dir, fmt.Sprintf("work%02d", w))
		if err := os.Mkdir(cwd, 0o755); err != nil {
			return "", err
		}
		session, err := p.newSession(cwd, "")
		if err != nil {
			return "", err
		}
		if err := converse(p, session, 10, 3000); err != nil {
			return "", err
		}
		if _, err := p.call("session/close", map[string]any{"sessionId": session}); err != nil {
			return "", err
		}
	}
	if err := p.stop(); err != nil {
		return "", err
	}
	logs, err := filepath.Glob(filepath.Join(agentDir, "sessions", "*", "*.jsonl"))
	if err != nil {
		return "", err
	}
	for i := len(logs); i < n; i++ {
		if err := copyLog(logs[i%len(logs)], i); err != nil {
			return "", err
		}
	}
	return agentDir, nil
}

// converse says n user messages of some words, each answered at length.
func converse(p *peer, session string, n, size int) error {
	for i := range n {
		answer := string(text(uint64(i), size))
		_, err := p.call("_oino/append", map[string]any{"sessionId": session, "entries": []any{
			map[string]any{"role": "user", "content": fmt.Sprintf("do the next thing, number %d of those that we spoke about", i)},
			map[string]any{"role": "assistant", "content": answer},
			map[string]any{"role": "tool", "toolCallId": fmt.Sprint("call", i), "status": "completed", "content": answer[:size/2]},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// copyLog writes the log again as that of another session.
func copyLog(name string, n int) error {
	created, rest, _ := strings.Cut(filepath.Base(name), "_")
	id := strings.TrimSuffix(rest, ".jsonl")
	other := fmt.Sprintf("%s%08x", id[:len(id)-8], n)
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var out []byte
	_, err = journal.Scan(bytes.NewReader(b), 1<<30, func(line journal.Line) error {
		if line.Err != nil {
			return line.Err
		}
		out, err = journal.Encode(out, bytes.ReplaceAll(line.Object, []byte(id), []byte(other)))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(name), created+"_"+other+".jsonl"), out, 0o600)
}

// list asks for the first page and returns how long that took.
func list(p *peer) (time.Duration, error) {
	line, err := p.request("session/list", map[string]any{})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	raw, err := p.exchange(line)
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	var r struct {
		Sessions []json.RawMessage `json:"sessions"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, err
	}
	if len(r.Sessions) == 0 {
		return 0, fmt.Errorf("the listing is empty: %.200s", raw)
	}
	return took, nil
}

func measureList(l *lab) ([]result, error) {
	n := l.size(10_000, 1_000)
	dir, err := l.temp("list")
	if err != nil {
		return nil, err
	}
	agentDir, err := manySessions(l, dir, n)
	if err != nil {
		return nil, err
	}
	p, err := l.serve(agentDir)
	if err != nil {
		return nil, err
	}
	defer p.abandon()
	first, err := list(p) // nothing is known yet: makes the summaries
	if err != nil {
		return nil, err
	}
	scan := func(int) (float64, error) {
		start := time.Now()
		all, err := rivals.ReadLogs(filepath.Join(agentDir, "sessions"))
		if err == nil && len(all) != n {
			err = fmt.Errorf("%d of %d logs were read", len(all), n)
		}
		return time.Since(start).Seconds(), err
	}
	if _, err := scan(0); err != nil { // both from the system's cache
		return nil, err
	}
	fresh := &sample{Unit: inSeconds}
	warm, rival, err := l.turns(inSeconds, func(int) (float64, error) {
		q, err := l.serve(agentDir)
		if err != nil {
			return 0, err
		}
		defer q.abandon()
		if _, err := q.initialize(); err != nil {
			return 0, err
		}
		took, err := list(q)
		if err != nil {
			return 0, err
		}
		fresh.addTime(took)
		took, err = list(p)
		return took.Seconds(), err
	}, scan)
	if err != nil {
		return nil, err
	}
	what := "session/list, " + thousands(n) + " sessions, "
	return []result{
		{What: what + "warm", Beside: "reading every log", Ours: warm, Rival: rival, Ratio: ratios(rival, warm), Goal: atLeast(50)},
		{What: what + "the first of a process", Beside: "reading every log", Ours: fresh, Rival: rival, Ratio: ratios(rival, fresh)},
		{What: what + "the first ever", Beside: "reading every log", Ours: sampleOf(inSeconds, first.Seconds()), Rival: rival, Ratio: ratios(rival, sampleOf(inSeconds, first.Seconds()))},
	}, nil
}
