package rivals

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Listed is what a listing shows of one session.
type Listed struct {
	ID, Cwd     string
	CreatedAt   int64
	UpdatedAt   int64
	Entries     int
	First, Last json.RawMessage // user messages
}

// ReadLogs lists the sessions whose logs lie below dir by reading all of every
// log, on all cores, newest activity first.
func ReadLogs(dir string) ([]Listed, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	all := make([]Listed, len(names))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		group.Go(func() (err error) {
			all[i], err = readLog(name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Listed) int { return int(b.UpdatedAt - a.UpdatedAt) })
	return all, nil
}

func readLog(name string) (Listed, error) {
	f, err := os.Open(name)
	if err != nil {
		return Listed{}, err
	}
	defer f.Close()
	var l Listed
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		var rec struct {
			Type      string          `json:"type"`
			ID        string          `json:"id"`
			Cwd       string          `json:"cwd"`
			Role      string          `json:"role"`
			CreatedAt int64           `json:"createdAt"`
			Content   json.RawMessage `json:"content"`
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			return l, err
		}
		switch rec.Type {
		case "session":
			l.ID, l.Cwd, l.CreatedAt, l.UpdatedAt = rec.ID, rec.Cwd, rec.CreatedAt, rec.CreatedAt
		case "entry":
			l.Entries++
			l.UpdatedAt = max(l.UpdatedAt, rec.CreatedAt)
			if rec.Role == "user" {
				if l.First == nil {
					l.First = rec.Content
				}
				l.Last = rec.Content
			}
		}
	}
}
