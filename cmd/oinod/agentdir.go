package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// getenv looks name up in the environment; the last one wins, as in a shell.
func (p *process) getenv(name string) string {
	for i := len(p.env) - 1; i >= 0; i-- {
		if key, value, ok := strings.Cut(p.env[i], "="); ok && key == name {
			return value
		}
	}
	return ""
}

// findAgentDir says where the agent directory is: --agent-dir, else
// OINO_AGENT_DIR, else .oino in the home directory. It is absolute, and need
// not exist.
func (p *process) findAgentDir() (string, error) {
	dir := p.agentDir
	if dir == "" {
		dir = p.getenv("OINO_AGENT_DIR")
	}
	if dir == "" {
		name := "HOME"
		if runtime.GOOS == "windows" {
			name = "USERPROFILE"
		}
		home := p.getenv(name)
		if home == "" {
			return "", fmt.Errorf("no agent directory: %s is not set; give --agent-dir or set OINO_AGENT_DIR", name)
		}
		dir = filepath.Join(home, ".oino")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("the agent directory %s: %w", dir, err)
	}
	return abs, nil
}

// checkAgentDir refuses what can never be an agent directory. Whether it can
// be written is a warning: a client may want nothing kept.
func checkAgentDir(dir string) (warning string, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if above, err := nearest(dir); err != nil {
			return "", fmt.Errorf("the agent directory %s cannot be used: %w", dir, err)
		} else if err := writable(above); err != nil {
			return fmt.Sprintf("the agent directory %s cannot be made: %s: %v", dir, above, err), nil
		}
		return "", nil
	case err != nil:
		return "", fmt.Errorf("the agent directory cannot be used: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("the agent directory %s is not a directory", dir)
	}
	if err := writable(dir); err != nil {
		return fmt.Sprintf("the agent directory %s cannot be written: %v", dir, err), nil
	}
	return "", nil
}

// nearest is the innermost directory above dir that exists.
func nearest(dir string) (string, error) {
	for {
		above := filepath.Dir(dir)
		if _, err := os.Stat(above); err == nil || above == dir {
			return above, err
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		dir = above
	}
}
