// Command bench measures oinod beside the usual ways of doing the same, and
// prints one table.
//
//	go run ./bench                    all rows
//	go run ./bench --only wrap,list   rows whose name holds one of these
//	go run ./bench --mem              only the rows about memory
//	go run ./bench --quick            small sizes, under a minute; exit 1 where a
//	                                  ratio is under half of its goal
//	go run ./bench --json             the same as JSON, with every single value
//
// # What a number means
//
// Absolute times do not travel; ratios do. So each row runs oinod and its rival
// (package rivals) in turns, A B A B, in the same directory of the same disk, and
// gives the median of the rounds with their smallest and largest value. Between
// any two measurements everything is synced: neither pays for what the other
// left unwritten. oinod is the built binary, spoken to over stdio, as an
// editor would; a rival of the same kind is a child process on the same pipes.
//
// What oinod answered is durable, and the time for that is in its numbers. Rivals
// do not sync; where that matters a row says what they take with it.
//
// # Rows
//
// A row is a name and a function that measures (rows below). It asks the
// binary what it can do: a row whose part of oinod is not there says "not
// built", and lights up by itself once it is. The rows named growth show that
// cost grows no faster than size: the time for one thing at 1, 10 and 100
// times the size.
//
// Everything happens in temporary directories, with HOME there too and no
// GIT_* variable. --dir says where they are made: the file system matters.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// row is one line of the table, or a few that are measured together.
type row struct {
	name    string
	slow    bool // too long for --quick
	measure func(*lab) ([]result, error)
}

// rows are all rows, in the order of the table.
func rows() []row {
	return []row{
		// First, for the others remove files: see lab.temp.
		{name: "rewind", measure: measureRewind},
		{name: "record", measure: measureRecord},
		{name: "capture", measure: measureCapture},
		{name: "wrap", measure: measureWrap},
		{name: "list", measure: measureList},
		{name: "start", measure: measureStart},
		{name: "mem-idle", measure: measureIdle},
		{name: "mem-files", measure: measureTracked},
		{name: "mem-log", measure: measureLoaded},
		{name: "growth-records", slow: true, measure: growthRecords},
		{name: "growth-rewind", slow: true, measure: growthRewind},
		{name: "growth-files", slow: true, measure: growthFiles},
		{name: "growth-sessions", slow: true, measure: growthSessions},
		{name: "growth-log", slow: true, measure: growthLog},
	}
}

// isOneOf reports whether the row's name holds one of the words in only, which
// commas separate.
func (r row) isOneOf(only string) bool {
	return slices.ContainsFunc(strings.Split(only, ","), func(word string) bool { return strings.Contains(r.name, word) })
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == childArg {
		return report(stderr, runChild(args[1:], stdin, stdout))
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		asJSON = flags.Bool("json", false, "print JSON instead of the table")
		only   = flags.String("only", "", "measure only rows whose name holds one of these words, separated by commas")
		mem    = flags.Bool("mem", false, "measure only the rows about memory")
		quick  = flags.Bool("quick", false, "small sizes, under a minute; exit 1 where a ratio is under half of its goal")
		dir    = flags.String("dir", "", "where the temporary directories are made (default: the system's place)")
		oinod  = flags.String("oinod", "", "the binary to measure (default: built from the source here)")
		rounds = flags.Int("rounds", 0, "how often each row is measured (default: 5, or 3 with --quick)")
	)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *mem {
		*only = "mem-"
	}
	var chosen []row
	for _, r := range rows() {
		if r.isOneOf(*only) && !(r.slow && *quick) {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 || flags.NArg() > 0 {
		fmt.Fprintf(stderr, "bench: there is no row %q to measure %v\n", *only, flags.Args())
		return 2
	}
	l, err := newLab(labConfig{dir: *dir, binary: *oinod, quick: *quick, rounds: *rounds, progress: stderr})
	if err != nil {
		return report(stderr, err)
	}
	defer l.close()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() { // ends with the process
		<-interrupted
		l.close()
		os.Exit(1)
	}()

	t := table{Command: command(args), Machine: machineOf(l.dir), Commit: commit(), Date: time.Now().UTC().Format("2006-01-02")}
	for _, r := range chosen {
		start := time.Now()
		l.say("%s", r.name)
		results, err := r.measure(l)
		if missing, ok := errors.AsType[*notBuilt](err); ok {
			results = append(results, result{What: r.name, NotBuilt: missing.what})
		} else if err != nil {
			return report(stderr, fmt.Errorf("%s: %w", r.name, err))
		}
		for i := range results {
			results[i].Row = r.name
		}
		t.Results = append(t.Results, results...)
		l.say("%s done in %.1f s", r.name, time.Since(start).Seconds())
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(t)
	} else {
		err = t.print(stdout)
	}
	if err != nil {
		return report(stderr, err)
	}
	if *quick {
		return report(stderr, t.underHalf())
	}
	return 0
}

func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "bench: %v\n", err)
	return 1
}

// command is how the table was made, for whoever wants to make it again.
func command(args []string) string {
	words := []string{"go", "run", "./bench"}
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if name == "dir" || name == "oinod" { // a path of this machine
			if !joined {
				i++
			}
			continue
		}
		words = append(words, args[i])
	}
	return strings.Join(words, " ")
}

// notBuilt is a part of oinod that is not there yet.
type notBuilt struct{ what string }

func (e *notBuilt) Error() string { return e.what + " is not built" }
