package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// result is one line of the table.
type result struct {
	Row    string  `json:"row"`
	What   string  `json:"what"`
	Beside string  `json:"beside,omitempty"`
	Ours   *sample `json:"oinod,omitempty"`
	Rival  *sample `json:"rival,omitempty"`
	// Ratio is what the goal is about: how much faster than the rival (at
	// least), how many times the rival's time, or a value of oinod's own (at most).
	Ratio    *sample `json:"ratio,omitempty"`
	Goal     *goal   `json:"goal,omitempty"`
	Note     string  `json:"note,omitempty"`
	NotBuilt string  `json:"notBuilt,omitempty"`
}

// goal is what design asks of a ratio.
type goal struct {
	AtMost bool    `json:"atMost"` // else at least
	Value  float64 `json:"value"`
}

func atLeast(v float64) *goal { return &goal{false, v} }
func atMost(v float64) *goal  { return &goal{true, v} }

// reached is 1 where value is just what is asked, and more where it is better.
func (g *goal) reached(value float64) float64 {
	switch {
	case g.AtMost && value <= 0: // no longer than the rival
		return math.Inf(1)
	case g.AtMost:
		return g.Value / value
	}
	return value / g.Value
}

// unit is what the values of a sample are.
type unit string

const (
	inSeconds unit = "s"
	inBytes   unit = "B"
	inTimes   unit = "×"
	inRate    unit = "msg/s"
)

// sample is the values of all rounds.
type sample struct {
	Unit   unit      `json:"unit"`
	Values []float64 `json:"values"`
}

func sampleOf(u unit, values ...float64) *sample { return &sample{u, values} }

func (s *sample) add(v float64)            { s.Values = append(s.Values, v) }
func (s *sample) addTime(d time.Duration)  { s.add(d.Seconds()) }
func (s *sample) sorted() []float64        { return slices.Sorted(slices.Values(s.Values)) }
func (s *sample) spread() (lo, hi float64) { v := s.sorted(); return v[0], v[len(v)-1] }

// median is the middle value, or the mean of the two in the middle.
func (s *sample) median() float64 {
	v := s.sorted()
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// ratios divides round by round, so that a slow moment of the machine, which
// meets both, does not count.
func ratios(over, under *sample) *sample {
	r := &sample{Unit: inTimes}
	for i := range min(len(over.Values), len(under.Values)) {
		r.add(over.Values[i] / under.Values[i])
	}
	return r
}

// String is the median with the smallest and largest value.
func (s *sample) String() string {
	if s == nil || len(s.Values) == 0 {
		return "—"
	}
	lo, hi := s.spread()
	if len(s.Values) == 1 || format(s.Unit, lo) == format(s.Unit, hi) {
		return format(s.Unit, s.median())
	}
	return fmt.Sprintf("%s (%s … %s)", format(s.Unit, s.median()), format(s.Unit, lo), format(s.Unit, hi))
}

// format writes a value with three digits that count.
func format(u unit, v float64) string {
	switch u {
	case inSeconds:
		switch a := max(v, -v); {
		case a >= 1:
			return digits(v) + " s"
		case a >= 1e-3:
			return digits(v*1e3) + " ms"
		default:
			return digits(v*1e6) + " µs"
		}
	case inBytes:
		return digits(v/(1<<20)) + " MiB"
	case inRate:
		return digits(v) + "/s"
	}
	return digits(v) + string(u)
}

func digits(v float64) string {
	switch a := max(v, -v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// table is what a run has found.
type table struct {
	Date    string   `json:"date"`
	Commit  string   `json:"commit"`
	Machine machine  `json:"machine"`
	Command string   `json:"command"`
	Results []result `json:"results"`
}

// print writes the table as Markdown.
func (t *table) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s at commit %s: %s.\n", t.Date, t.Commit, t.Machine)
	fmt.Fprintf(&b, "Made by `%s`. Medians of the rounds, with the smallest and largest in brackets.\n\n", t.Command)
	fmt.Fprintln(&b, "| what | oinod | beside | ratio | goal | |")
	fmt.Fprintln(&b, "| --- | --- | --- | --- | --- | --- |")
	for _, r := range t.Results {
		b.WriteString(r.line())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *result) line() string {
	if r.NotBuilt != "" {
		return fmt.Sprintf("| %s | | | | | not built: %s |\n", r.What, r.NotBuilt)
	}
	what, beside := r.What, r.Beside
	if r.Note != "" {
		what += " (" + r.Note + ")"
	}
	if r.Rival != nil {
		beside += ": " + r.Rival.String()
	}
	asked, holds := "", ""
	if r.Goal != nil {
		asked, holds = "≥ ", "holds"
		if r.Goal.AtMost {
			asked = "≤ "
		}
		asked += format(r.Ratio.Unit, r.Goal.Value)
		if r.Goal.reached(r.Ratio.median()) < 1 {
			holds = "**missed**"
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", what, r.Ours, beside, r.Ratio, asked, holds)
}

// underHalf names every result that is not even half as good as it should be.
func (t *table) underHalf() error {
	var errs []error
	for _, r := range t.Results {
		if r.Goal != nil && r.Goal.reached(r.Ratio.median()) < 0.5 {
			errs = append(errs, fmt.Errorf("%s: %s is under half of the goal of %s", r.What, r.Ratio, format(r.Ratio.Unit, r.Goal.Value)))
		}
	}
	return errors.Join(errs...)
}

func (s *sample) sum() float64 {
	total := 0.0
	for _, v := range s.Values {
		total += v
	}
	return total
}
