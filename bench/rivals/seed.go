package rivals

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Seed keeps checkpoints the simple way. All it knows is one index, which is
// encoded whole, written beside the old one and renamed over it whenever a path
// is recorded; each snapshot is one new file. Nothing is synced.
type Seed struct {
	dir   string
	index seedIndex
	known map[string]bool // paths recorded since the last prompt
	blobs int
}

type seedIndex struct {
	Version     int              `json:"version"`
	Checkpoints []seedCheckpoint `json:"checkpoints"`
}

type seedCheckpoint struct {
	EntryID   string     `json:"entryId"`
	CreatedAt int64      `json:"createdAt"`
	Files     []seedFile `json:"files"`
}

type seedFile struct {
	Path    string `json:"path"`
	Existed bool   `json:"existed"`
	Blob    string `json:"blob,omitempty"`
	Mode    uint32 `json:"mode,omitempty"`
}

// NewSeed makes an empty store in dir.
func NewSeed(dir string) (*Seed, error) {
	s := &Seed{dir: dir, index: seedIndex{Version: 1}}
	return s, os.MkdirAll(filepath.Join(dir, "blobs"), 0o700)
}

// Prompt begins a checkpoint.
func (s *Seed) Prompt(entryID string) error {
	s.index.Checkpoints = append(s.index.Checkpoints, seedCheckpoint{EntryID: entryID, CreatedAt: time.Now().UnixMilli()})
	s.known = map[string]bool{}
	return s.save()
}

// Record keeps what path is now, once a checkpoint.
func (s *Seed) Record(path string) error {
	if s.known[path] {
		return nil
	}
	if err := s.add(path); err != nil {
		return err
	}
	return s.save()
}

// add is Record without the index.
func (s *Seed) add(path string) error {
	if len(s.index.Checkpoints) == 0 {
		return errors.New("there is no checkpoint to record for")
	}
	f := seedFile{Path: path}
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		s.blobs++
		f.Existed, f.Blob, f.Mode = true, fmt.Sprintf("%08d", s.blobs), uint32(info.Mode().Perm())
		if err := os.WriteFile(filepath.Join(s.dir, "blobs", f.Blob), content, 0o600); err != nil {
			return err
		}
	}
	last := &s.index.Checkpoints[len(s.index.Checkpoints)-1]
	last.Files = append(last.Files, f)
	s.known[path] = true
	return nil
}

func (s *Seed) save() error {
	b, err := json.Marshal(s.index)
	if err != nil {
		return err
	}
	name := filepath.Join(s.dir, "index.json")
	if err := os.WriteFile(name+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

// Rewind puts back what every path was at the checkpoint. It is not measured:
// it shows that what Record keeps is enough.
func (s *Seed) Rewind(entryID string) error {
	for i, c := range s.index.Checkpoints {
		if c.EntryID != entryID {
			continue
		}
		done := map[string]bool{}
		for _, c := range s.index.Checkpoints[i:] {
			for _, f := range c.Files {
				if done[f.Path] {
					continue
				}
				done[f.Path] = true
				if err := s.putBack(f); err != nil {
					return err
				}
			}
		}
		s.index.Checkpoints = s.index.Checkpoints[:i]
		return s.save()
	}
	return fmt.Errorf("there is no checkpoint %q", entryID)
}

func (s *Seed) putBack(f seedFile) error {
	if !f.Existed {
		if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	content, err := os.ReadFile(filepath.Join(s.dir, "blobs", f.Blob))
	if err != nil {
		return err
	}
	return os.WriteFile(f.Path, content, fs.FileMode(f.Mode))
}

// ServeSeed serves the methods that the measurements use, over the same wire
// and with the same messages as oinod, so that the wire costs both the same.
func ServeSeed(dir string, in io.Reader, out io.Writer) error {
	s, err := NewSeed(dir)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(line, &req); err != nil {
			return err
		}
		answer := struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Result  any             `json:"result,omitempty"`
			Error   any             `json:"error,omitempty"`
		}{JSONRPC: "2.0", ID: req.ID}
		if answer.Result, err = s.serve(req.Method, req.Params); err != nil {
			answer.Error = map[string]any{"code": -32603, "message": err.Error()}
		}
		b, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
}

func (s *Seed) serve(method string, params json.RawMessage) (any, error) {
	switch method {
	case "initialize", "_oino/turn_end":
		return map[string]any{}, nil
	case "session/new":
		return map[string]any{"sessionId": "seed"}, nil
	case "_oino/append":
		var p struct {
			Entries []struct {
				ID string `json:"id"`
			} `json:"entries"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		ids := []string{}
		for _, e := range p.Entries {
			ids = append(ids, e.ID)
			if err := s.Prompt(e.ID); err != nil {
				return nil, err
			}
		}
		return map[string]any{"entryIds": ids}, nil
	case "_oino/record", "_bench/fill":
		var p struct {
			Paths []string `json:"paths"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		for _, path := range p.Paths {
			record := s.Record
			if method == "_bench/fill" { // so that turns nobody measures take no time
				record = s.add
			}
			if err := record(path); err != nil {
				return nil, err
			}
		}
		return map[string]any{"recorded": p.Paths}, nil
	}
	return nil, fmt.Errorf("the seed has no method %q", method)
}
