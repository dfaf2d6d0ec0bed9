// Command compare runs the Go benchmarks next to the code at two commits and
// compares them with benchstat.
//
//	go run ./bench/compare OLD NEW             all benchmarks
//	go run ./bench/compare --bench Record OLD  OLD beside the working tree
//
// Each side's test binaries are built once, from an export of the commit in a
// temporary directory; then they run in turns, one count of each at a time, so
// that a slow moment of the machine meets both. A difference that benchstat
// calls "~" is none; p-values need a count of six or more.
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(1)
	}
}

// tree is the source at one commit, and its test binaries.
type tree struct {
	name    string
	dir     string
	results string // file of what the benchmarks printed
	tests   map[string]string
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	pattern := flags.String("bench", ".", "benchmarks to run, as for go test")
	count := flags.Int("count", 6, "how often each is run")
	packages := flags.String("packages", "./...", "packages whose benchmarks are run")
	benchtime := flags.String("benchtime", "0.5s", "how long each runs, as for go test")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 1 || flags.NArg() > 2 {
		return errors.New("say one commit, to compare with the working tree, or two")
	}
	root, err := output("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "oinod-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)

	old := &tree{name: flags.Arg(0), dir: filepath.Join(temp, "old"), results: filepath.Join(temp, "old.txt")}
	if err := old.export(root); err != nil {
		return err
	}
	now := &tree{name: "the working tree", dir: root, results: filepath.Join(temp, "new.txt")}
	if flags.NArg() == 2 {
		now.name, now.dir = flags.Arg(1), filepath.Join(temp, "new")
		if err := now.export(root); err != nil {
			return err
		}
	}
	sides := []*tree{old, now}
	for _, t := range sides {
		fmt.Fprintf(stderr, "building the tests of %s\n", t.name)
		if err := t.build(filepath.Join(temp, filepath.Base(t.results)+".tests"), *packages); err != nil {
			return err
		}
	}
	for n := range *count {
		for _, t := range sides {
			fmt.Fprintf(stderr, "%d of %d: %s\n", n+1, *count, t.name)
			if err := t.measure(*pattern, *benchtime); err != nil {
				return err
			}
		}
	}
	stat := exec.Command("go", "tool", "benchstat", "old="+old.results, "new="+now.results)
	stat.Dir, stat.Stdout, stat.Stderr = root, stdout, stderr
	return stat.Run()
}

// export writes the files of the commit to the tree's directory.
func (t *tree) export(root string) error {
	cmd := exec.Command("git", "archive", "--format=tar", t.name)
	cmd.Dir = root
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := unpack(out, t.dir); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git archive %s: %w", t.name, err)
	}
	return nil
}

func unpack(r io.Reader, dir string) error {
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		name := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		b, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, b, fs.FileMode(h.Mode)&0o777); err != nil {
			return err
		}
	}
}

// build makes a test binary of every package that has benchmarks.
func (t *tree) build(dir, packages string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list, err := output(t.dir, "go", "list", "-f", "{{.ImportPath}}\t{{.Dir}}", packages)
	if err != nil {
		return err
	}
	t.tests = map[string]string{}
	for n, line := range strings.Split(list, "\n") {
		pkg, source, _ := strings.Cut(line, "\t")
		if has, err := hasBenchmarks(source); err != nil || !has {
			if err != nil {
				return err
			}
			continue
		}
		binary := filepath.Join(dir, fmt.Sprintf("%d.test.exe", n))
		if _, err := output(t.dir, "go", "test", "-c", "-o", binary, pkg); err != nil {
			return err
		}
		t.tests[binary] = source
	}
	return nil
}

func hasBenchmarks(dir string) (bool, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return false, err
		}
		if strings.Contains(string(b), "\nfunc Benchmark") {
			return true, nil
		}
	}
	return false, err
}

// measure runs every benchmark once and keeps what it printed.
func (t *tree) measure(pattern, benchtime string) error {
	out, err := os.OpenFile(t.results, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	for binary, source := range t.tests {
		cmd := exec.Command(binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", benchtime, "-test.benchmem")
		cmd.Dir, cmd.Stdout, cmd.Stderr = source, out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("the benchmarks in %s: %w", source, err)
		}
	}
	return out.Close()
}

func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(b)), nil
}
