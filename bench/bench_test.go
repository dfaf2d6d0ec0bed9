package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASampleIsItsMedianWithItsSpread(t *testing.T) {
	s := sampleOf(inSeconds, 3, 1, 2)
	require.Equal(t, 2.0, s.median())
	require.Equal(t, "2.00 s (1.00 s … 3.00 s)", s.String())
	s.addTime(4 * time.Second)
	require.Equal(t, 2.5, s.median())
	require.Equal(t, 10.0, s.sum())
	require.Equal(t, []float64{3, 1, 2, 4}, s.Values, "the order of the rounds stays")
	require.Equal(t, "—", (*sample)(nil).String())
	require.Equal(t, "10.0 MiB", sampleOf(inBytes, 10<<20).String())
	require.Equal(t, "12.3 µs", sampleOf(inSeconds, 12.34e-6).String())
	require.Equal(t, "50.0×", ratios(sampleOf(inSeconds, 5), sampleOf(inSeconds, 0.1)).String())
	require.Equal(t, "1,234,567", thousands(1234567))
	require.Equal(t, "1,000", thousands(1000))
}

func TestAGoalIsMissedOrHolds(t *testing.T) {
	for _, c := range []struct {
		goal  *goal
		value float64
		holds string
		half  bool // at least half of what is asked
	}{
		{atLeast(10), 10, "holds", true},
		{atLeast(10), 9.9, "**missed**", true},
		{atLeast(10), 4.9, "**missed**", false},
		{atMost(1.5), 1.5, "holds", true},
		{atMost(1.5), 2.9, "**missed**", true},
		{atMost(1.5), 3.1, "**missed**", false},
		{atMost(50e-6), -1e-6, "holds", true}, // faster than the rival
	} {
		r := result{What: "it", Ratio: sampleOf(inTimes, c.value), Goal: c.goal}
		require.Contains(t, r.line(), c.holds, "%+v", c)
		require.Equal(t, c.half, (&table{Results: []result{r}}).underHalf() == nil, "%+v", c)
	}
}

func TestATableIsMarkdownAndSaysWhatIsNotBuilt(t *testing.T) {
	tab := table{Date: "2026-01-02", Commit: "abc", Command: "go run ./bench", Results: []result{
		{What: "one", Beside: "another", Ours: sampleOf(inSeconds, 1), Rival: sampleOf(inSeconds, 2), Ratio: sampleOf(inTimes, 2), Goal: atLeast(2)},
		{What: "two", NotBuilt: "oinod wrap"},
	}}
	var out strings.Builder
	require.NoError(t, tab.print(&out))
	require.Contains(t, out.String(), "| one | 1.00 s | another: 2.00 s | 2.00× | ≥ 2.00× | holds |\n| two | | | | | not built: oinod wrap |\n")
	require.NoError(t, tab.underHalf())
}

func TestTheCommandInTheTableHoldsNoPathOfThisMachine(t *testing.T) {
	require.Equal(t, "go run ./bench --only list --json", command([]string{"--dir", "/x", "--only", "list", "--oinod=/y", "--json"}))
}

func TestArgumentsThatSayNothing(t *testing.T) {
	for _, args := range [][]string{{"--only", "no such row"}, {"more"}, {"--nonsense"}} {
		require.Equal(t, 2, run(args, strings.NewReader(""), io.Discard, io.Discard), "%q", args)
	}
}

func TestRowsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		require.False(t, seen[r.name], r.name)
		seen[r.name] = true
	}
	require.True(t, row{name: "mem-log"}.isOneOf("list,mem"))
	require.True(t, row{name: "mem-log"}.isOneOf(""))
	require.False(t, row{name: "mem-log"}.isOneOf("list,start"))
}

func TestTheAgentStreamsAsMuchAsItIsAsked(t *testing.T) {
	in := `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}
{"jsonrpc":"2.0","method":"session/cancel","params":{}}
{"jsonrpc":"2.0","id":"x","method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"stream 3"}]}}
`
	var out bytes.Buffer
	require.NoError(t, agent(strings.NewReader(in), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 5)
	for _, line := range lines {
		require.True(t, json.Valid([]byte(line)), line)
	}
	require.Contains(t, lines[4], `"id":"x"`)
}

func TestTextIsOfItsSizeAndItsOwn(t *testing.T) {
	require.Len(t, text(1, 4096), 4096)
	require.NotEqual(t, text(1, 4096), text(2, 4096))
	require.Equal(t, text(1, 4096), text(1, 4096))
}
