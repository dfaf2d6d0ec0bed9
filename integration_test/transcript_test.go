//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The transcripts are recorded traffic of real clients and agents, less what
// is long or tells of a machine. Each line is a message, who said it, and what
// the watched files were when it passed ("size:digest", or ENOENT). Played
// again, the agent says its part and changes files at the same moments, or
// earlier.

// moment is one line of a transcript.
type moment struct {
	Dir string            `json:"dir"` // client, agent, or spawn
	FS  map[string]string `json:"fs"`
	Msg json.RawMessage   `json:"msg"`
	EOF bool              `json:"eof"`

	method, id string
	answers    string // of an answer: the method that was asked
}

// readTranscript reads the n-th process of a transcript.
func readTranscript(path string, n int, cwd string) ([]moment, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []moment
	asked := map[string]string{} // "dir id" → method
	process := -1
	for line := range strings.Lines(strings.ReplaceAll(string(data), "/workspace", cwd)) {
		var m moment
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return nil, err
		}
		if m.Dir == "spawn" {
			process++
			continue
		}
		if process != n {
			continue
		}
		var head struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if m.Msg != nil {
			if err := json.Unmarshal(m.Msg, &head); err != nil {
				return nil, err
			}
		}
		m.method, m.id = head.Method, string(head.ID)
		other := map[string]string{"client": "agent", "agent": "client"}[m.Dir]
		switch {
		case m.method != "" && m.id != "":
			asked[m.Dir+" "+m.id] = m.method
		case m.method == "":
			m.answers = asked[other+" "+m.id]
		}
		all = append(all, m)
	}
	return all, nil
}

// become makes files what they were at a moment.
func become(cwd string, fs map[string]string) error {
	for name, was := range fs {
		path := filepath.Join(cwd, name)
		size, digest, there := strings.Cut(was, ":")
		if !there {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				return err
			}
			continue
		}
		n, err := strconv.Atoi(size)
		if err != nil {
			return err
		}
		content := strings.Repeat(digest+"\n", n/len(digest)+1)[:n]
		if old, err := os.ReadFile(path); err == nil && string(old) == content {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// byClient is whether the client itself made the files what they were at a
// moment: on the agent's behalf.
func (m *moment) byClient() bool {
	return m.Dir == "client" && m.answers == "fs/write_text_file"
}

// playAgent is the agent's part: options are the transcript, which process of
// it, the workspace, and how many moments earlier files change.
func playAgent(path, process, cwd, early string) int {
	n, _ := strconv.Atoi(process)
	sooner, _ := strconv.Atoi(early)
	moments, err := readTranscript(path, n, cwd)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	for i, m := range moments {
		if m.Dir == "client" {
			if m.EOF {
				break
			}
			line, err := in.ReadString('\n')
			if err != nil {
				return 1
			}
			if m.method != "" && !strings.Contains(line, strconv.Quote(m.method)) {
				fmt.Fprintf(os.Stderr, "want %s, got %s", m.Msg, line)
				return 1
			}
		} else {
			become(cwd, ahead(moments, i, sooner))
			fmt.Printf("%s\n", m.Msg)
		}
		if m.method == "session/prompt" {
			become(cwd, ahead(moments, i, sooner))
		}
	}
	_, _ = io.Copy(io.Discard, in)
	return 0
}

// ahead is what the files are made before a message of the agent's: those of
// a later moment of the same turn, unless the client makes them so.
func ahead(moments []moment, i, sooner int) map[string]string {
	fs := moments[i].FS
	for j := i + 1; j < len(moments) && j <= i+sooner; j++ {
		m := moments[j]
		if m.byClient() || m.method == "session/prompt" || m.EOF || m.Dir == "client" && m.method != "" {
			break
		}
		fs = m.FS
		if m.answers == "session/prompt" {
			break
		}
	}
	return fs
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	needWorkspaceTracking(t)
	paths, err := filepath.Glob(filepath.Join("testdata", "transcripts", "*.jsonl"))
	require.NoError(t, err)
	require.Len(t, paths, 12)
	for _, path := range paths {
		for _, early := range []int{0, 1, 1000} {
			t.Run(fmt.Sprintf("%s/%d earlier", strings.TrimSuffix(filepath.Base(path), ".jsonl"), early), func(t *testing.T) {
				t.Parallel()
				abs, err := filepath.Abs(path)
				require.NoError(t, err)
				b := newBox(t)
				b.write("deep/er/kept.bin", "\x00\xff\x00")
				b.write(".gitignore", "deep/\n")
				for n := 0; ; n++ {
					moments, err := readTranscript(abs, n, b.work)
					require.NoError(t, err)
					if len(moments) == 0 {
						require.NotZero(t, n)
						break
					}
					b.playClient(moments, b.wrap("play="+abs, fmt.Sprintf("process=%d", n), "cwd="+b.work, fmt.Sprintf("sooner=%d", early)))
				}
			})
		}
	}
}

// playClient is the client's part of one process, and a rewind after it.
func (b *box) playClient(moments []moment, p *process) {
	b.t.Helper()
	require.NoError(b.t, become(b.work, moments[0].FS))
	p.nextID = 100_000           // those below are the transcript's
	var before map[string]string // the tree before the first prompt
	session := ""
	outside := false // something changed when no turn ran
	for i, m := range moments {
		if m.Dir == "agent" {
			if !strings.Contains(string(m.Msg), `"available_commands_update"`) { // which says more now
				b.untilSaid(p, m)
			}
			if m.answers == "session/new" {
				session = field[string](b.t, m.Msg, "result", "sessionId")
			}
			continue
		}
		if m.EOF {
			break
		}
		if m.method == "session/prompt" {
			if before == nil {
				before = b.tree()
			} else if fmt.Sprint(m.FS) != fmt.Sprint(moments[i-1].FS) {
				outside = true // a command that went on
				require.NoError(b.t, become(b.work, m.FS))
			}
		}
		if m.byClient() {
			require.NoError(b.t, become(b.work, m.FS))
		}
		require.NoError(b.t, p.send(m.Msg))
	}
	if before == nil || session == "" {
		p.kill()
		return
	}
	checkpoints := field[[]any](b.t, p.call("_oino/checkpoints", map[string]any{"sessionId": session}), "checkpoints")
	require.NotEmpty(b.t, checkpoints)
	now := b.tree()
	entry := checkpoints[0].(map[string]any)["entryId"]
	rewind := map[string]any{"sessionId": session, "entryId": entry}
	if b.unanswered(moments) { // an agent that forgets the second of two prompts
		require.Equal(b.t, "turn_running", p.refused("_oino/rewind", rewind).kind())
		require.NoError(b.t, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, session)))
		require.Eventually(b.t, func() bool {
			_, err := p.try("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry, "dryRun": true})
			return err == nil
		}, patience, patience/100)
	}
	result := p.call("_oino/rewind", rewind)
	if outside {
		require.Equal(b.t, now, b.tree(), "no turn has changed anything")
		require.Contains(b.t, string(result), `"outside"`)
	} else {
		require.Equal(b.t, before, b.tree())
	}
	b.sameWords(moments, p)
	p.kill()
}

// unanswered is whether the agent never answers a prompt.
func (b *box) unanswered(moments []moment) bool {
	open := map[string]bool{}
	for _, m := range moments {
		switch {
		case m.method == "session/prompt":
			open[m.id] = true
		case m.answers == "session/prompt":
			delete(open, m.id)
		}
	}
	return len(open) > 0
}

// untilSaid waits for a request or an answer of the agent's.
func (b *box) untilSaid(p *process, want moment) {
	b.t.Helper()
	_, _, err := p.await(func(_ int, m message) bool {
		if want.id == "" {
			return strings.TrimSuffix(string(m.raw), "\n") == string(want.Msg)
		}
		return string(m.ID) == want.id && m.Method == want.method
	}, "", 0)
	require.NoError(b.t, err, "%s", want.Msg)
}

// sameWords: all that the agent said has come through as it was and in order,
// but for what says more now.
func (b *box) sameWords(moments []moment, p *process) {
	b.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	at := 0
	for _, m := range moments {
		if m.Dir == "client" && m.EOF {
			return
		}
		if m.Dir != "agent" || m.answers == "initialize" || strings.Contains(string(m.Msg), `"available_commands_update"`) {
			continue
		}
		for at < len(p.seen) && strings.TrimSuffix(string(p.seen[at].raw), "\n") != string(m.Msg) {
			at++
		}
		require.Less(b.t, at, len(p.seen), "not passed on, or not in its place: %s", m.Msg)
		at++
	}
}
