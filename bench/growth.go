package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// growth measures the same at 1, 10 and 100 times a size. What counts is the
// time for one thing at the largest size beside that at the smallest.
func growth(what, thing string, sizes [3]int, measure func(n int) (float64, error)) ([]result, error) {
	var each []float64
	var notes []string
	for _, n := range sizes {
		v, err := measure(n)
		if err != nil {
			return nil, err
		}
		each = append(each, v/float64(n))
		notes = append(notes, thousands(n)+": "+format(inSeconds, v/float64(n)))
	}
	return []result{{
		What: what, Note: strings.Join(notes, ", ") + " a " + thing,
		Ours: sampleOf(inSeconds, each[2]), Beside: "the smallest size", Rival: sampleOf(inSeconds, each[0]),
		Ratio: sampleOf(inTimes, each[2]/each[0]), Goal: atMost(1.5),
	}}, nil
}

// growthRecords records ever more in one session, 200 paths a turn.
func growthRecords(l *lab) ([]result, error) {
	return growth("records in a session", "record", [3]int{1_000, 10_000, 100_000}, func(n int) (float64, error) {
		dir, err := l.temp("growth")
		if err != nil {
			return 0, err
		}
		t, err := newTree(dir+"/work", 200, 1024)
		if err != nil {
			return 0, err
		}
		p, err := l.serve(dir + "/agent")
		if err != nil {
			return 0, err
		}
		defer p.abandon()
		session, err := p.newSession(t.dir, "")
		if err != nil {
			return 0, err
		}
		var total time.Duration
		for turn := range n / len(t.paths) {
			if _, err := p.user(session, turn); err != nil {
				return 0, err
			}
			lines, err := p.records(session, t.paths, 1)
			if err != nil {
				return 0, err
			}
			start := time.Now()
			if err := p.pipeline(lines); err != nil {
				return 0, err
			}
			total += time.Since(start)
			if err := t.change(); err != nil {
				return 0, err
			}
		}
		return total.Seconds(), nil
	})
}

// growthRewind rewinds ever more files.
func growthRewind(l *lab) ([]result, error) {
	return growth("files in a rewind", "file", [3]int{200, 2_000, 20_000}, func(n int) (float64, error) {
		s := &sample{Unit: inSeconds}
		for range 3 {
			took, err := rewindOnce(l, n)
			if err != nil {
				return 0, err
			}
			s.addTime(took)
		}
		return s.median(), nil
	})
}

// growthFiles captures ever larger workspaces.
func growthFiles(l *lab) ([]result, error) {
	if err := l.needWorkspace(); err != nil {
		return nil, err
	}
	return growth("files in a workspace, captured with nothing changed", "file", [3]int{1_000, 10_000, 100_000}, func(n int) (float64, error) {
		return captureOnce(l, n)
	})
}

// growthSessions lists ever more sessions, warm.
func growthSessions(l *lab) ([]result, error) {
	return growth("sessions in an agent directory, listed warm", "session", [3]int{100, 1_000, 10_000}, func(n int) (float64, error) {
		dir, err := l.temp("growth")
		if err != nil {
			return 0, err
		}
		agentDir, err := manySessions(l, dir, n)
		if err != nil {
			return 0, err
		}
		p, err := l.serve(agentDir)
		if err != nil {
			return 0, err
		}
		defer p.abandon()
		s := &sample{Unit: inSeconds}
		for range 11 {
			took, err := list(p)
			if err != nil {
				return 0, err
			}
			s.addTime(took)
		}
		return s.median(), nil
	})
}

// growthLog opens ever longer logs.
func growthLog(l *lab) ([]result, error) {
	return growth("bytes in a log, opened", "MiB", [3]int{10, 100, 1_000}, func(n int) (float64, error) {
		dir, err := l.temp("growth")
		if err != nil {
			return 0, err
		}
		agentDir, cwd, session, err := longLog(l, dir, n<<20)
		if err != nil {
			return 0, err
		}
		s := &sample{Unit: inSeconds}
		for range 3 {
			p, err := l.serve(agentDir)
			if err != nil {
				return 0, err
			}
			took, err := l.timed(func() error {
				_, err := p.call("session/resume", map[string]any{"sessionId": session, "cwd": cwd, "mcpServers": []any{}})
				return err
			})
			if err != nil {
				p.abandon()
				return 0, err
			}
			s.addTime(took)
			if err := p.stop(); err != nil {
				return 0, err
			}
		}
		return s.median(), os.RemoveAll(dir) // large, and few files
	})
}

// thousands writes n with spaces between groups of three digits.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
