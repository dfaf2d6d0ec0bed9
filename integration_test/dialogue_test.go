//go:build unix

package integration

// # The language of dialogues
//
// A dialogue is a txtar archive: what a user, an agent and their tools do, and
// what must come of it. Its comment says what is claimed. The sections, in
// their order:
//
//	workspace/NAME ATTR…  a file that is there before the session begins; with a
//	                      "/" at the end of NAME, a directory
//	agent/NAME ATTR…      a file of the agent directory
//	new.json              more params of session/new ({} if missing)
//	capabilities.json     the clientCapabilities of initialize ({} if missing)
//	dialogue              lines as below
//	want/NAME ATTR…       what the workspace must hold after the dialogue section
//	                      above: these and the directories they need, nothing
//	                      missing and nothing extra. "want/" alone: it is empty.
//
// A dialogue section and its want sections may come several times. ATTR is
// mode=0755, symlink=TARGET, or quoted: the section is one Go string, which
// needs no newline at its end.
//
// When the first line runs, a process serves, initialize and session/new have
// been answered, and $S is the session. Lines that begin with white space
// continue the one before; # begins a comment line.
//
//	-> METHOD {params}    sends a request. sessionId is $S unless params say
//	                      otherwise; session/new, load, resume and fork get cwd
//	                      and mcpServers.
//	-> {"method":…}       the same, spelled out: only jsonrpc and id are added
//	-> {"result":…}       answers the newest request of oinod
//	<- {"result":…}       the request's answer must hold this
//	<- {"error":…}        it must be refused like this
//	<- {"method":…}       a message like this comes; others may come before it
//	no {"method":…}       none like this came since the last request
//	prompt "TEXT"         session/prompt; the entry ids are $E1, $E2, …
//	prompt S2 "TEXT"      the same in session $S2
//
// A request without a line about its answer must be answered with a result.
// Lines of one request are in the order of the wire.
//
//	user: ACTION          somebody does something to the workspace; agent: means
//	agent: ACTION         the agent's shell. Actions are below, at (*player).act.
//	sh: SCRIPT            a shell command in the workspace: of the agent's while a
//	                      turn is open. Variables are in its environment.
//	save NAME             remembers the whole workspace
//	same NAME             it must be as remembered: kinds, modes, bytes, links
//	untouched NAME PATH…  so must inodes and times, of all but PATHs
//	is PATH "TEXT"        PATH is a file that holds TEXT
//	mode PATH 0600        PATH has these permissions
//	link PATH "TARGET"    PATH is a link to TARGET
//	gone PATH             nothing is there
//	lines PATH 3          PATH has that many lines
//	dead PATH             the process whose id PATH holds has ended
//	exit, start, kill     ends the process by EOF (exit code 0), starts another
//	                      (and says initialize), ends it by SIGKILL
//	restart               exit, start, and session/resume of $S
//	process NAME          goes on in another process, started if it is new
//	store: HARM           something happens to the kept contents, see (*player).harm
//	disk                  this dialogue is about the disk: not played in memory
//	unprivileged          permissions must count: oinod does not run as root
//	tracked               sessions have tracking "workspace" (and are on disk)
//	repository            the workspace is a git repository, with all in it
//	                      committed before the session begins
//
// $NAME is a variable: WORK, AGENT, HOME, OUT (a directory outside of all),
// S, E1… and what was captured. In what is expected, an object holds at least
// the given keys, null stands for absent, a list is exactly as given (in any
// order where the protocol promises none), "…" is anything that is there, the
// string "$NAME" of a new name captures what stands there, "~TEXT" is a string
// that contains TEXT. The result of a rewind has no failed, merged, uncovered,
// unchecked, outside or remaining but those that are given.
//
// Each dialogue is played twice, with a session on disk and with one in memory
// (persist:false, which must leave nothing behind), unless it is about the disk.

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// TestDialogues plays every dialogue of testdata.
func TestDialogues(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		title := strings.TrimSuffix(filepath.Base(name), ".txtar")
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			playBoth(t, data)
		})
	}
}

// mainRows are the rows of the scenarios that the main job must hold; each is
// a dialogue of its own.
var mainRows = strings.Fields("N3 N7 N10 U1 U2 U4 U5 U8 C1 C2 C3 C5 C6 C7 C8 K1 K2 K8 X4 X5 F1 F2 F3 F8")

// safeRows are the rows of safe rewinding that a dialogue can tell: where
// neither a fault of the disk nor a crash at a chosen moment is needed.
var safeRows = strings.Fields("U3 U10 U11 K3 K4 K5 K6 K7 K9 K10 K11 N4 N5 N8 N9 F4 F5")

func TestEveryRowHasItsDialogue(t *testing.T) {
	for _, row := range slices.Concat(mainRows, safeRows) {
		found, err := filepath.Glob(filepath.Join("testdata", row+"_*.txtar"))
		require.NoError(t, err)
		require.NotEmpty(t, found, "row %s", row)
	}
}

// playBoth plays a dialogue with a session on disk and one in memory.
func playBoth(t *testing.T, data []byte) {
	archive := txtar.Parse(data)
	t.Run("disk", func(t *testing.T) { play(t, archive, false) })
	if !slices.ContainsFunc(archive.Files, aboutTheDisk) {
		t.Run("memory", func(t *testing.T) { play(t, archive, true) })
	}
}

var diskLine = regexp.MustCompile(`(?m)^(restart|exit|start|kill|process|disk|tracked|store:)`)

func aboutTheDisk(f txtar.File) bool {
	return f.Name == "dialogue" && diskLine.Match(f.Data)
}

// player plays one dialogue.
type player struct {
	*box
	inMemory bool
	caps     json.RawMessage
	newExtra map[string]any
	vars     map[string]string
	entries  int // $E1 … so far

	procs map[string]*process
	p     *process

	open  []asked // requests whose answers have not been looked at
	mark  int     // index in p.seen: what came before the last request
	next  int     // index in p.seen: what lines about messages have not passed
	trees map[string]map[string]node
	sizes map[string]int64 // of the store's files, at "store: mark"
	// where the bit is that "store: flip" has flipped
	flipped   string
	flippedAt int64

	given map[string]bool // files of the agent directory that the dialogue put there
}

// asked is a request that was sent.
type asked struct{ id, method string }

func play(t *testing.T, archive *txtar.Archive, inMemory bool) {
	d := &player{box: newBox(t), inMemory: inMemory, caps: json.RawMessage("{}"), vars: map[string]string{},
		procs: map[string]*process{}, trees: map[string]map[string]node{}, given: map[string]bool{}}
	maps.Copy(d.vars, map[string]string{"WORK": d.work, "AGENT": d.agent, "HOME": d.home, "OUT": d.out})
	if declares(archive, "unprivileged") {
		d.dropPrivileges()
	}
	if declares(archive, "tracked") {
		d.newExtra = map[string]any{"_meta": map[string]any{"oino": map[string]any{"tracking": "workspace"}}}
	}
	started := false
	for i, f := range archive.Files {
		name, attrs, _ := strings.Cut(f.Name, " ")
		switch {
		case strings.HasPrefix(name, "workspace/"):
			d.place(d.work, strings.TrimPrefix(name, "workspace/"), attrs, f.Data)
		case strings.HasPrefix(name, "agent/"):
			require.NoError(t, os.MkdirAll(d.agent, 0o700))
			d.own(d.agent)
			rel := strings.TrimPrefix(name, "agent/")
			d.given[rel] = true
			d.place(d.agent, rel, attrs, []byte(d.fill(string(f.Data))))
		case name == "new.json":
			require.NoError(t, json.Unmarshal([]byte(d.fillJSON(string(f.Data))), &d.newExtra))
		case name == "capabilities.json":
			d.caps = f.Data
		case name == "dialogue":
			if !started {
				started = true
				if declares(archive, "repository") {
					d.git([]string{"init", "-q"})
					d.git([]string{"add", "-A"})
					d.git([]string{"commit", "-q", "--allow-empty", "-m", "v0"})
				}
				d.to("A")
				d.vars["S"] = field[string](t, d.p.call("session/new", d.params("session/new", nil)), "sessionId")
				d.passAll()
			}
			d.lines(string(f.Data))
			if !t.Failed() {
				d.wantTree(archive.Files[i+1:])
			}
		case strings.HasPrefix(name, "want/"):
		default:
			require.FailNow(t, "a section of no known kind", f.Name)
		}
	}
	require.True(t, started, "no dialogue section")
	for _, name := range slices.Sorted(maps.Keys(d.procs)) {
		if p := d.procs[name]; !p.wasKilled() {
			require.Zero(t, p.exit(), "exit code")
		}
	}
	if inMemory {
		d.wantNothingKept()
	}
}

// declares reports whether a dialogue has the word as a line.
func declares(archive *txtar.Archive, word string) bool {
	return slices.ContainsFunc(archive.Files, func(f txtar.File) bool {
		return f.Name == "dialogue" && strings.Contains("\n"+string(f.Data), "\n"+word+"\n")
	})
}

// wantNothingKept: a session in memory leaves nothing under the agent
// directory; a lock is nothing of a session's.
func (d *player) wantNothingKept() {
	d.t.Helper()
	var kept []string
	err := filepath.WalkDir(d.agent, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		rel, _ := filepath.Rel(d.agent, path)
		if err == nil && !e.IsDir() && !d.given[rel] && !strings.HasSuffix(rel, ".lock") {
			kept = append(kept, rel)
		}
		return err
	})
	require.NoError(d.t, err)
	require.Empty(d.t, kept, "a session in memory left files behind")
}

// to goes on in the process of that name, which is started if it is new.
func (d *player) to(name string) {
	d.t.Helper()
	d.settle()
	if d.procs[name] == nil || d.procs[name].wasKilled() {
		label := name
		if name == "A" {
			label = ""
		}
		d.procs[name] = d.startNamed(label)
		d.procs[name].initialize(d.caps)
	}
	d.p = d.procs[name]
	d.passAll()
}

// passAll makes lines about messages look only at what comes from here on.
func (d *player) passAll() {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	d.mark = len(d.p.seen)
	d.next = d.mark
}

// fill puts variables in.
func (d *player) fill(text string) string { return d.expand(text, func(v string) string { return v }) }

// fillJSON puts variables into JSON strings.
func (d *player) fillJSON(text string) string {
	return d.expand(text, func(v string) string {
		quoted, err := json.Marshal(v)
		require.NoError(d.t, err)
		return string(quoted[1 : len(quoted)-1])
	})
}

// fillKnown is fillJSON that leaves a string which is a new name as it is.
func (d *player) fillKnown(text string) string {
	var kept []string
	text = quotedName.ReplaceAllStringFunc(text, func(quoted string) string {
		if _, known := d.vars[quoted[2:len(quoted)-1]]; known {
			return quoted
		}
		kept = append(kept, quoted)
		return "\x00"
	})
	text = d.fillJSON(text)
	for _, quoted := range kept {
		text = strings.Replace(text, "\x00", quoted, 1)
	}
	return text
}

var (
	quotedName = regexp.MustCompile(`"\$[A-Z][A-Za-z0-9]*"`)
	newName    = regexp.MustCompile(`^\$[A-Z][A-Za-z0-9]*$`)
)

var variable = regexp.MustCompile(`\$[A-Z][A-Za-z0-9]*`)

func (d *player) expand(text string, as func(string) string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		value, ok := d.vars[name[1:]]
		require.True(d.t, ok, "no variable %s", name)
		return as(value)
	})
}

// lines plays a dialogue section.
func (d *player) lines(text string) {
	d.t.Helper()
	var whole []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case (line[0] == ' ' || line[0] == '\t') && len(whole) > 0:
			whole[len(whole)-1] += " " + strings.TrimSpace(line)
		default:
			whole = append(whole, line)
		}
	}
	for _, line := range whole {
		d.talk.add("", "   ", line)
		verb, rest, _ := strings.Cut(line, " ")
		d.line(verb, strings.TrimSpace(rest), line)
		if d.t.Failed() {
			d.t.Logf("at: %s", line)
			d.t.FailNow()
		}
	}
	d.settle()
}

func (d *player) line(verb, rest, line string) {
	d.t.Helper()
	switch verb {
	case "<-":
		d.expect(d.fillKnown(rest))
		return
	case "no":
		d.expectNone(d.fillKnown(rest))
		return
	case "->":
		d.say(rest)
		return
	}
	d.settle()
	if verb == "sh:" {
		d.sh(rest)
		return
	}
	words := d.words(rest)
	switch verb {
	case "prompt":
		session := "S"
		if len(words) == 2 {
			session, words = words[0], words[1:]
		}
		require.Len(d.t, words, 1, line)
		d.entries++
		d.vars[fmt.Sprintf("E%d", d.entries)] = d.p.prompt(d.vars[session], words[0])
		d.passAll()
	case "user:", "agent:":
		d.act(words, line)
	case "store:":
		d.harm(words, line)
	case "exit":
		require.Zero(d.t, d.p.exit(), "exit code")
		d.p.kill()
	case "start":
		d.to(d.name())
	case "kill":
		d.p.kill()
	case "restart":
		require.Zero(d.t, d.p.exit(), "exit code")
		d.p.kill()
		d.to(d.name())
		d.p.call("session/resume", d.params("session/resume", nil))
		d.passAll()
	case "process":
		d.to(words[0])
	case "disk", "unprivileged", "tracked", "repository": // known since before the first line
	case "save":
		d.trees[words[0]] = tree(d.t, d.work)
	case "same":
		d.sameTree(d.trees[words[0]], tree(d.t, d.work))
	case "untouched":
		d.untouched(d.trees[words[0]], words[1:])
	case "is":
		data, err := os.ReadFile(d.at(words[0]))
		require.NoError(d.t, err, line)
		require.Equal(d.t, words[1], string(data), line)
	case "mode":
		info, err := os.Lstat(d.at(words[0]))
		require.NoError(d.t, err, line)
		require.Equal(d.t, words[1], fmt.Sprintf("%04o", info.Mode().Perm()), line)
	case "link":
		target, err := os.Readlink(d.at(words[0]))
		require.NoError(d.t, err, line)
		require.Equal(d.t, words[1], target, line)
	case "lines":
		data, err := os.ReadFile(d.at(words[0]))
		require.NoError(d.t, err, line)
		require.Equal(d.t, words[1], strconv.Itoa(strings.Count(string(data), "\n")), "%s: %q", line, data)
	case "dead":
		data, err := os.ReadFile(d.at(words[0]))
		require.NoError(d.t, err, line)
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		require.NoError(d.t, err, line)
		require.Eventually(d.t, func() bool { return dead(pid) }, patience, 5*time.Millisecond, line)
	case "gone":
		_, err := os.Lstat(d.at(words[0]))
		require.ErrorIs(d.t, err, fs.ErrNotExist, line)
	default:
		require.FailNow(d.t, "a line of no known kind", line)
	}
}

// name is the current process's name.
func (d *player) name() string {
	for name, p := range d.procs {
		if p == d.p {
			return name
		}
	}
	return "A"
}

// words splits a line; a word may be a Go string.
func (d *player) words(rest string) []string {
	d.t.Helper()
	var words []string
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		if rest[0] == '"' || rest[0] == '`' {
			quoted, err := strconv.QuotedPrefix(rest)
			require.NoError(d.t, err, rest)
			word, err := strconv.Unquote(quoted)
			require.NoError(d.t, err, rest)
			words, rest = append(words, d.fill(word)), rest[len(quoted):]
			continue
		}
		word, after, _ := strings.Cut(rest, " ")
		words, rest = append(words, d.fill(word)), after
	}
	return words
}

// say sends a line of the client's.
func (d *player) say(rest string) {
	d.t.Helper()
	if strings.HasPrefix(rest, "{") {
		var m map[string]json.RawMessage
		require.NoError(d.t, json.Unmarshal([]byte(d.fillJSON(rest)), &m), rest)
		if m["method"] == nil {
			d.reply(m)
			return
		}
		d.settle()
		var method string
		require.NoError(d.t, json.Unmarshal(m["method"], &method))
		if method == "$/cancel_request" || method == "session/cancel" { // ACP's notifications
			line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": m["params"]})
			require.NoError(d.t, err)
			require.NoError(d.t, d.p.send(line))
			return
		}
		d.request(method, m["params"])
		return
	}
	method, params, _ := strings.Cut(rest, " ")
	d.settle()
	var given map[string]any
	if params = strings.TrimSpace(params); params != "" {
		require.NoError(d.t, json.Unmarshal([]byte(d.fillJSON(params)), &given), rest)
	}
	d.request(method, d.params(method, given))
}

// params are those given, and what the method always needs.
func (d *player) params(method string, given map[string]any) map[string]any {
	params := map[string]any{}
	switch method {
	case "session/new":
		params["cwd"], params["mcpServers"] = d.work, []any{}
		maps.Copy(params, d.newExtra)
	case "session/load", "session/resume", "session/fork":
		params["sessionId"], params["cwd"], params["mcpServers"] = d.vars["S"], d.work, []any{}
	case "session/list", "initialize", "_oino/stats":
	default:
		params["sessionId"] = d.vars["S"]
	}
	maps.Copy(params, given)
	if method == "session/new" && d.inMemory {
		meta, _ := params["_meta"].(map[string]any)
		ours, _ := meta["oino"].(map[string]any)
		ours = maps.Clone(ours)
		if ours == nil {
			ours = map[string]any{}
		}
		ours["persist"] = false
		params["_meta"] = map[string]any{"oino": ours}
	}
	return params
}

func (d *player) request(method string, params any) {
	d.t.Helper()
	d.passAll()
	id, err := d.p.ask(method, params)
	require.NoError(d.t, err)
	d.open = append(d.open, asked{id, method})
}

// reply answers the newest request that oinod has sent.
func (d *player) reply(m map[string]json.RawMessage) {
	d.t.Helper()
	d.p.mu.Lock()
	var id json.RawMessage
	for _, seen := range d.p.seen {
		if seen.Method != "" && seen.ID != nil {
			id = seen.ID
		}
	}
	d.p.mu.Unlock()
	require.NotNil(d.t, id, "oinod has asked nothing")
	m["jsonrpc"], m["id"] = json.RawMessage(`"2.0"`), id
	line, err := json.Marshal(m)
	require.NoError(d.t, err)
	require.NoError(d.t, d.p.send(line))
}

// settle requires a result for every request whose answer no line was about.
func (d *player) settle() {
	d.t.Helper()
	for _, q := range d.open {
		result, err := d.p.wait(q.id)
		require.NoError(d.t, err, q.method)
		d.noteEntry(q.method, result)
	}
	d.open = nil
}

// noteEntry gives the user entry of a prompt that a dialogue spelled out its
// number.
func (d *player) noteEntry(method string, result json.RawMessage) {
	var r struct {
		Meta struct {
			Oino struct {
				EntryID  string `json:"entryId"`
				TurnOpen bool   `json:"turnOpen"`
			} `json:"oino"`
		} `json:"_meta"`
	}
	if method == "session/prompt" && json.Unmarshal(result, &r) == nil && r.Meta.Oino.TurnOpen {
		d.entries++
		d.vars[fmt.Sprintf("E%d", d.entries)] = r.Meta.Oino.EntryID
	}
}

// expect checks what came against a line.
func (d *player) expect(text string) {
	d.t.Helper()
	var want map[string]any
	require.NoError(d.t, json.Unmarshal([]byte(text), &want), text)
	if want["method"] != nil {
		// The answer to the open request ends the wait, unless it is before
		// what the line speaks of.
		_, at, err := d.p.await(func(_ int, m message) bool {
			return m.Method != "" && d.holds(want, m.raw) == nil
		}, "", d.next)
		require.NoError(d.t, err, "no message %s", text)
		d.next = at + 1
		return
	}
	require.NotEmpty(d.t, d.open, "no request is open")
	q := d.open[0]
	d.open = d.open[1:]
	m, at, err := d.p.await(func(int, message) bool { return false }, q.id, d.next)
	require.NoError(d.t, err, q.method)
	require.GreaterOrEqual(d.t, at, d.next, "the answer to %s came before the messages that belong to it", q.method)
	d.next = at + 1
	require.NoError(d.t, d.holds(want, m.raw), "%s: expected %s\ngot %s", q.method, text, m.raw)
	d.noteEntry(q.method, m.Result)
}

// expectNone checks that no message like this came since the last request.
func (d *player) expectNone(text string) {
	d.t.Helper()
	var want map[string]any
	require.NoError(d.t, json.Unmarshal([]byte(text), &want), text)
	d.settle() // all that belongs to the request is there when its answer is
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	for _, m := range d.p.seen[d.mark:] {
		if m.Method != "" && d.holds(want, m.raw) == nil {
			require.Fail(d.t, "an unwanted message", "%s", m.raw)
		}
	}
}

// holds reports how raw fails to hold what is wanted; it captures variables.
func (d *player) holds(want map[string]any, raw []byte) error {
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		return err
	}
	captured := map[string]string{}
	if err := hold("", want, got, captured); err != nil {
		return err
	}
	maps.Copy(d.vars, captured)
	return nil
}

// unordered are the lists whose order the protocol leaves open.
var unordered = map[string]bool{"restored": true, "deleted": true, "merged": true, "unchecked": true, "failed": true,
	"uncovered": true, "outside": true, "changed": true, "recorded": true, "known": true, "ahead": true}

// isUnordered reports whether the list at a place of an answer is one in any
// order. files is in first-change order in a list of checkpoints, and in any in
// a diff.
func isUnordered(at string, want []any) bool {
	key := at[strings.LastIndexByte(at, '.')+1:]
	if key == "files" && len(want) > 0 {
		first, _ := want[0].(map[string]any)
		return first["change"] != nil
	}
	return unordered[key]
}

// saidOfRewind is what a rewind's result says only where there is something to
// say: what a dialogue does not name must not be there. (A redo's remaining may
// be there as 0.)
var saidOfRewind = []string{"failed", "merged", "uncovered", "unchecked", "outside", "remaining"}

// hold is nil if got holds what is wanted, else says where it does not.
func hold(at string, want, got any, captured map[string]string) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %v, not an object", at, got)
		}
		if _, rewind := w["restored"]; rewind {
			for _, key := range saidOfRewind {
				if _, named := w[key]; !named && g[key] != nil && g[key] != 0.0 {
					return fmt.Errorf("%s.%s is there: %v", at, key, g[key])
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if err := hold(at+"."+key, w[key], g[key], captured); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s is %v, not %d values", at, got, len(w))
		}
		if isUnordered(at, w) {
			return holdAnyOrder(at, w, g, captured)
		}
		for i := range w {
			if err := hold(fmt.Sprintf("%s.%d", at, i), w[i], g[i], captured); err != nil {
				return err
			}
		}
		return nil
	case string:
		g, isString := got.(string)
		switch {
		case w == "…" && got != nil:
			return nil
		case newName.MatchString(w) && isString:
			captured[w[1:]] = g
			return nil
		case len(w) > 1 && w[0] == '~' && isString && strings.Contains(g, w[1:]):
			return nil
		}
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("%s is %v, not %v", at, got, want)
	}
	return nil
}

func holdAnyOrder(at string, want, got []any, captured map[string]string) error {
	left := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(left, func(g any) bool { return hold(at+"[]", w, g, captured) == nil })
		if i < 0 {
			return fmt.Errorf("%s has no %v: %v", at, w, got)
		}
		left = slices.Delete(left, i, i+1)
	}
	return nil
}

// at is an absolute path; a relative one is below the workspace.
func (d *player) at(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return d.work + "/" + path // not Join: ".." and "." are left as they are
}

// act does something to the workspace, as a person or a shell would:
//
//	write PATH TEXT     puts TEXT in the file, in place; makes missing parents
//	append PATH TEXT    adds TEXT to the file
//	fill PATH BYTES     puts that many bytes in the file that say nothing
//	many DIR COUNT      makes that many small files, which are some years old
//	mkdir PATH          with missing parents
//	rm PATH             whatever is there
//	mv FROM TO
//	chmod MODE PATH
//	symlink TARGET PATH
//	hardlink PATH NEW
//	age PATH            makes the file look some years old
//	fifo PATH, socket PATH
//	git ARG…            in the workspace
//	deny DIR, allow DIR takes from oinod the right to change what is in DIR, and
//	                    gives it back; needs root
func (d *player) act(words []string, line string) {
	d.t.Helper()
	require.GreaterOrEqual(d.t, len(words), 2, line)
	arg := func(i int) string {
		require.Greater(d.t, len(words), i, line)
		return words[i]
	}
	path := d.at(arg(1))
	must := func(err error) {
		d.t.Helper()
		require.NoError(d.t, err, line)
	}
	switch words[0] {
	case "write":
		d.mkdirs(filepath.Dir(path))
		must(os.WriteFile(path, []byte(arg(2)), 0o644))
		d.own(path)
	case "append":
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		must(err)
		_, err = f.WriteString(arg(2))
		must(err)
		must(f.Close())
	case "fill":
		n, err := strconv.Atoi(arg(2))
		must(err)
		must(os.WriteFile(path, noise(n), 0o644))
		d.own(path)
	case "many":
		n, err := strconv.Atoi(arg(2))
		must(err)
		d.mkdirs(path)
		for i := range n {
			name := filepath.Join(path, fmt.Sprintf("f%04d", i))
			must(os.WriteFile(name, fmt.Appendf(nil, "file %d\n", i), 0o644))
			d.own(name)
			must(os.Chtimes(name, years, years))
		}
	case "mkdir":
		d.mkdirs(path)
	case "rm":
		_, err := os.Lstat(path)
		must(err)
		must(os.RemoveAll(path))
	case "mv":
		must(os.Rename(path, d.at(arg(2))))
	case "chmod":
		mode, err := strconv.ParseUint(arg(1), 8, 32)
		must(err)
		must(os.Chmod(d.at(arg(2)), fs.FileMode(mode)))
	case "symlink":
		must(os.Symlink(arg(1), d.at(arg(2))))
		d.own(d.at(arg(2)))
	case "hardlink":
		must(os.Link(path, d.at(arg(2))))
	case "age":
		must(os.Chtimes(path, years, years))
	case "git":
		d.git(words[1:])
	case "deny":
		if !d.unprivileged {
			d.t.Skip("only root can take a directory away from its owner")
		}
		must(os.Chown(path, 0, 0))
	case "allow":
		d.own(path)
	case "fifo":
		must(syscall.Mkfifo(path, 0o644))
		d.own(path)
	case "socket":
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		must(err)
		l.SetUnlinkOnClose(false)
		must(l.Close())
		d.own(path)
	default:
		require.FailNow(d.t, "an action of no known kind", line)
	}
}

// git runs git as the user would.
func (d *player) git(args []string) {
	d.t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		d.t.Skip("git is not installed")
	}
	d.run("git", args...)
}

// sh runs a script with the shell.
func (d *player) sh(script string) {
	d.t.Helper()
	if _, err := exec.LookPath("git"); err != nil && strings.Contains(script, "git ") {
		d.t.Skip("git is not installed")
	}
	d.run("sh", "-ec", script)
}

// run runs a command in the workspace, as whom oinod runs.
func (d *player) run(name string, args ...string) {
	d.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = d.work
	cmd.Env = append(d.environment(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@example.org",
		"GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@example.org")
	for name, value := range d.vars {
		if name != "HOME" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	if d.unprivileged {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(d.t, err, "%s %v: %s", name, args, out)
}

// dead reports whether a process has ended; one that nobody has waited for yet
// has.
func dead(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && runtime.GOOS == "linux"
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name before it may hold anything but this
	return strings.HasPrefix(after, "Z")
}

// years ago, when the files of a long-lived project were last touched.
var years = time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC)

// noise is n bytes that no text tool and no compression makes anything of.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	r.Read(b)
	return b
}

func (d *player) mkdirs(dir string) {
	d.t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	d.mkdirs(filepath.Dir(dir))
	require.NoError(d.t, os.Mkdir(dir, 0o755))
	d.own(dir)
}

// harm damages the store of contents:
//
//	mark      remembers it
//	flip      flips one bit in the middle of what was kept since the mark
//	flip back flips it again
//	remove    removes what was kept since the mark: the file that grew most
func (d *player) harm(words []string, line string) {
	d.t.Helper()
	sizes := map[string]int64{}
	err := filepath.WalkDir(filepath.Join(d.agent, "blobs"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.Type().IsRegular() {
			info, err := e.Info()
			require.NoError(d.t, err)
			sizes[path] = info.Size()
		}
		return err
	})
	require.NoError(d.t, err)
	if words[0] == "mark" {
		d.sizes = sizes
		return
	}
	if slices.Equal(words, []string{"flip", "back"}) {
		require.NotEmpty(d.t, d.flipped, line)
		d.flip()
		return
	}
	most, grown := "", int64(0)
	for path, size := range sizes {
		if g := size - d.sizes[path]; g > grown {
			most, grown = path, g
		}
	}
	require.NotEmpty(d.t, most, "nothing was kept since the mark")
	switch words[0] {
	case "flip":
		d.flipped, d.flippedAt = most, d.sizes[most]+grown/2
		d.flip()
	case "remove":
		require.NoError(d.t, os.Remove(most))
	default:
		require.FailNow(d.t, "a harm of no known kind", line)
	}
}

// flip flips the bit that "store: flip" has chosen.
func (d *player) flip() {
	d.t.Helper()
	f, err := os.OpenFile(d.flipped, os.O_RDWR, 0)
	require.NoError(d.t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, d.flippedAt)
	require.NoError(d.t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, d.flippedAt)
	require.NoError(d.t, err)
}

// node is one thing in a tree.
type node struct {
	kind   string // file, dir, link, other
	mode   fs.FileMode
	data   string // a file's bytes, a link's target
	inode  uint64
	mtime  time.Time
	anyway bool // of a wanted directory: it is there only for what is in it
}

func (n node) String() string {
	data := n.data
	if len(data) > 200 {
		data = data[:200] + "…"
	}
	return fmt.Sprintf("%s %04o %q", n.kind, n.mode, data)
}

// tree is all that is below a directory.
func tree(t testing.TB, root string) map[string]node {
	t.Helper()
	nodes := map[string]node{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		n := node{kind: "other", mode: info.Mode().Perm() | info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky),
			mtime: info.ModTime(), inode: info.Sys().(*syscall.Stat_t).Ino}
		switch {
		case info.IsDir():
			n.kind = "dir"
		case info.Mode().IsRegular():
			n.kind = "file"
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n.data = string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			n.kind = "link"
			n.mode = 0 // means nothing
			if n.data, err = os.Readlink(path); err != nil {
				return err
			}
		}
		rel, err := filepath.Rel(root, path)
		nodes[rel] = n
		return err
	})
	require.NoError(t, err)
	return nodes
}

// sameTree compares kinds, modes, bytes and targets.
func (d *player) sameTree(want, got map[string]node) {
	d.t.Helper()
	require.NotNil(d.t, want, "no tree of that name was saved")
	var differ []string
	for _, path := range slices.Sorted(maps.Keys(want)) {
		w, g := want[path], got[path]
		if _, there := got[path]; !there {
			differ = append(differ, fmt.Sprintf("missing: %q, %s", path, w))
		} else if w.kind != g.kind || w.data != g.data || w.mode != g.mode {
			differ = append(differ, fmt.Sprintf("changed: %q is %s, was %s", path, g, w))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if _, there := want[path]; !there {
			differ = append(differ, fmt.Sprintf("extra: %q, %s", path, got[path]))
		}
	}
	require.Empty(d.t, differ, "the workspace is not the same")
}

// untouched compares inodes and times of all but some paths.
func (d *player) untouched(want map[string]node, but []string) {
	d.t.Helper()
	got := tree(d.t, d.work)
	for path, w := range want {
		if w.kind == "dir" || slices.Contains(but, path) {
			continue // a directory's time is that of the names in it
		}
		g := got[path]
		require.Equal(d.t, w.inode, g.inode, "another inode: %s", path)
		require.True(d.t, w.mtime.Equal(g.mtime), "another time: %s", path)
		require.Equal(d.t, w.data, g.data, "other bytes: %s", path)
	}
}

// wantTree checks the workspace against the want sections that files begin
// with, if they do.
func (d *player) wantTree(files []txtar.File) {
	d.t.Helper()
	want := map[string]node{}
	any := false
	for _, f := range files {
		name, attrs, _ := strings.Cut(f.Name, " ")
		rel, ok := strings.CutPrefix(name, "want/")
		if !ok {
			break
		}
		any = true
		if rel == "" {
			continue
		}
		n := node{kind: "file", data: d.fill(string(f.Data))}
		if dir, ok := strings.CutSuffix(rel, "/"); ok {
			rel, n = dir, node{kind: "dir"}
		}
		d.attributes(&n, attrs)
		want[rel] = n
		for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
			if _, there := want[dir]; !there {
				want[dir] = node{kind: "dir", anyway: true}
			}
		}
	}
	if !any {
		return
	}
	got := tree(d.t, d.work)
	for path, g := range got { // where no mode is wanted, any will do
		if want[path].mode == 0 {
			g.mode = 0
			got[path] = g
		}
	}
	d.sameTree(want, got)
}

// attributes reads what follows a section's name.
func (d *player) attributes(n *node, attrs string) {
	d.t.Helper()
	for _, attr := range strings.Fields(attrs) {
		key, value, _ := strings.Cut(attr, "=")
		switch key {
		case "mode":
			mode, err := strconv.ParseUint(value, 8, 32)
			require.NoError(d.t, err, attrs)
			n.mode = fs.FileMode(mode)
		case "symlink":
			n.kind, n.data = "link", d.fill(value)
		case "quoted":
			text, err := strconv.Unquote(strings.TrimSpace(n.data))
			require.NoError(d.t, err, n.data)
			n.data = text
		case "base64":
			data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(n.data))
			require.NoError(d.t, err, n.data)
			n.data = string(data)
		default:
			require.FailNow(d.t, "an attribute of no known kind", attrs)
		}
	}
}

// place puts a section's file where it belongs.
func (d *player) place(root, rel, attrs string, data []byte) {
	d.t.Helper()
	path := filepath.Join(root, rel)
	if strings.HasSuffix(rel, "/") {
		d.mkdirs(path)
		if attrs != "" {
			n := node{}
			d.attributes(&n, attrs)
			require.NoError(d.t, os.Chmod(path, n.mode))
		}
		return
	}
	n := node{kind: "file", mode: 0o644, data: string(data)}
	d.attributes(&n, attrs)
	d.mkdirs(filepath.Dir(path))
	if n.kind == "link" {
		require.NoError(d.t, os.Symlink(n.data, path))
	} else {
		require.NoError(d.t, os.WriteFile(path, []byte(n.data), n.mode))
		require.NoError(d.t, os.Chmod(path, n.mode)) // whatever the umask
	}
	d.own(path)
}
