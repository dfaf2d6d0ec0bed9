package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// machine is what the numbers depend on.
type machine struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Cores      int    `json:"cores"`
	CPU        string `json:"cpu,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	FileSystem string `json:"fileSystem,omitempty"`
	Go         string `json:"go"`
	Git        string `json:"git,omitempty"`
}

func (m machine) String() string {
	s := fmt.Sprintf("%d cores", m.Cores)
	if m.CPU != "" {
		s += " (" + m.CPU + ")"
	}
	s += ", " + m.OS + "/" + m.Arch
	if m.Kernel != "" {
		s += " " + m.Kernel
	}
	if m.FileSystem != "" {
		s += ", " + m.FileSystem
	}
	s += ", " + m.Go
	if m.Git != "" {
		s += ", " + m.Git
	}
	return s
}

// machineOf is this machine, with the file system that dir is on.
func machineOf(dir string) machine {
	m := machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		CPU:        fieldOf("/proc/cpuinfo", "model name"),
		FileSystem: fileSystemOf(dir),
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := exec.Command("git", "--version").Output(); err == nil {
		m.Git = strings.TrimSpace(strings.Replace(string(b), " version", "", 1))
	}
	return m
}

// fieldOf is the first value of a field in a file of "name : value" lines, "" where there is none.
func fieldOf(file, field string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(name) == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fileSystemOf is the type of the file system that dir is on, "" where the
// system does not tell.
func fileSystemOf(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	at, kind := "", ""
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		under := f[1] == "/" || real == f[1] || strings.HasPrefix(real, f[1]+"/")
		if under && len(f[1]) >= len(at) {
			at, kind = f[1], f[2]
		}
	}
	return kind
}

// commit is the commit that is measured, marked where there are changes on top.
func commit() string {
	b, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	c := strings.TrimSpace(string(b))
	if b, err := exec.Command("git", "status", "--porcelain").Output(); err != nil || len(b) > 0 {
		c += " with changes"
	}
	return c
}
