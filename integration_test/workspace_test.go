//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// workspaceRows are the rows of the scenarios about tracking "workspace". Each
// is a dialogue whose name ends in _workspace, or a test whose name begins with
// the rows that it is about.
var workspaceRows = strings.Fields(`N1 N2 N3 N4 N6 N7 U2 U5 U7 U8 U9 U11 U12 C4 G1 G2 G3 G4 G5 G6 G7 G8
	K3 K4 K9 K11 K12 K13 X6 X7 X9 X10 X11 X12`)

var (
	rowsOfTest = regexp.MustCompile(`(?m)^func Test((?:[A-Z][0-9]+)+)`)
	rowName    = regexp.MustCompile(`[A-Z][0-9]+`)
)

func TestEveryWorkspaceRowHasItsTest(t *testing.T) {
	has := map[string]bool{}
	source, err := os.ReadFile("workspace_test.go")
	require.NoError(t, err)
	for _, m := range rowsOfTest.FindAllStringSubmatch(string(source), -1) {
		for _, row := range rowName.FindAllString(m[1], -1) {
			has[row] = true
		}
	}
	for _, row := range workspaceRows {
		found, err := filepath.Glob(filepath.Join("testdata", row+"_*_workspace.txtar"))
		require.NoError(t, err)
		require.True(t, len(found) > 0 || has[row], "row %s", row)
	}
}

// newTracked makes a session with tracking "workspace".
func (p *process) newTracked(cwd string) string {
	p.t.Helper()
	made := p.call("session/new", trackedParams(cwd))
	require.Equal(p.t, "workspace", field[string](p.t, made, "_meta", "oino", "tracking"))
	return field[string](p.t, made, "sessionId")
}

func trackedParams(cwd string) map[string]any {
	return map[string]any{"cwd": cwd, "mcpServers": []any{}, "_meta": map[string]any{"oino": map[string]any{"tracking": "workspace"}}}
}

// endTurn ends the open turn.
func (p *process) endTurn(session string) {
	p.t.Helper()
	p.call("_oino/turn_end", map[string]any{"sessionId": session})
}

// rewound is what a rewind or a redo says.
type rewound struct {
	Restored, Deleted []string
	Failed            []struct{ Path, Code, Error string }
	Outside           []struct{ Path string }
}

func (p *process) rewind(session, entry string, more map[string]any) rewound {
	p.t.Helper()
	params := map[string]any{"sessionId": session, "entryId": entry}
	maps.Copy(params, more)
	return p.rewoundBy("_oino/rewind", params)
}

func (p *process) redo(session string) rewound {
	p.t.Helper()
	return p.rewoundBy("_oino/redo", map[string]any{"sessionId": session})
}

func (p *process) rewoundBy(method string, params any) (r rewound) {
	p.t.Helper()
	require.NoError(p.t, json.Unmarshal(p.call(method, params), &r))
	return r
}

// hostile is a directory of programs that must not run: each leaves a mark.
func (b *box) hostile(names ...string) (dir, mark string) {
	b.t.Helper()
	dir, mark = filepath.Join(b.out, "bin"), filepath.Join(b.out, "ran")
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	for _, name := range names {
		script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\ncat\n", name, mark)
		require.NoError(b.t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir, mark
}

// TestG1G5TheRepositoryIsLeftAlone: 20 turns with rewinds and redos in a
// repository that has all that a repository can have, with everything set in
// configuration and environment that leads git astray. The repository is, to
// the byte, the inode and the time, what it was; nothing was run; and what was
// captured and brought back is the files' own bytes.
func TestG1G5TheRepositoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	b := newBox(t)
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(b.environment(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@example.org",
			"GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@example.org")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
	}
	for i := range 30 {
		b.write(fmt.Sprintf("src/d%d/f%d.txt", i%4, i), fmt.Sprintf("line\r\nof file %d\nmixed\r\n", i))
	}
	b.write("big.bin", string(noise(50_000)))
	git(b.work, "init", "-q")
	git(b.work, "add", "-A")
	git(b.work, "commit", "-qm", "one")
	git(b.work, "branch", "side")
	git(b.work, "tag", "-am", "tag", "v1")
	b.write("src/d0/f0.txt", "stashed\n")
	git(b.work, "stash", "-q")
	git(b.work, "gc", "-q")
	b.write("src/d1/f1.txt", "committed\r\n")
	git(b.work, "commit", "-qam", "two")
	b.write("src/d2/f2.txt", "staged\n")
	git(b.work, "add", "-A")
	b.write("src/d2/f2.txt", "staged and changed\r\n")
	b.write("untracked", "u\n")
	b.write(".gitattributes", "* text=auto eol=crlf filter=lfs\n*.bin binary\n")
	decoy := filepath.Join(b.out, "decoy")
	require.NoError(t, os.Mkdir(decoy, 0o755))
	git(decoy, "init", "-q")
	git(decoy, "commit", "-q", "--allow-empty", "-m", "decoy")

	bin, mark := b.hostile("git", "git-lfs", "gpg", "ssh", "hook", "post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman")
	run := func(name string) string { return filepath.Join(bin, name) }
	global := filepath.Join(b.out, "gitconfig")
	excludes := filepath.Join(b.out, "excludes")
	require.NoError(t, os.WriteFile(excludes, []byte("*\n"), 0o644))
	config := fmt.Sprintf(`[core]
	hooksPath = %s
	fsmonitor = %s
	autocrlf = true
	excludesFile = %s
	attributesFile = %s
	ignoreCase = true
	fileMode = false
[commit]
	gpgSign = true
[gpg]
	program = %s
[filter "lfs"]
	clean = %s
	smudge = %s
	process = %[6]s
	required = true
[safe]
	bareRepository = explicit
`, bin, run("hook"), excludes, excludes, run("gpg"), run("git-lfs"), run("git-lfs"))
	require.NoError(t, os.WriteFile(global, []byte(config), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".gitconfig"), []byte(config), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(b.home, ".config", "git"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".config", "git", "ignore"), []byte("*\n"), 0o644))
	own, err := os.OpenFile(b.path(".git/config"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = own.WriteString(config)
	require.NoError(t, err)
	require.NoError(t, own.Close())
	trace := filepath.Join(b.out, "trace")
	other := filepath.Join(decoy, ".git")
	b.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"),
		"XDG_CONFIG_HOME=" + filepath.Join(b.home, ".config"),
		"GIT_DIR=" + other, "GIT_WORK_TREE=" + decoy, "GIT_INDEX_FILE=" + filepath.Join(other, "other-index"),
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(other, "objects"), "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + b.path(".git/objects"),
		"GIT_COMMON_DIR=" + other, "GIT_NAMESPACE=other", "GIT_CEILING_DIRECTORIES=" + b.root, "GIT_DISCOVERY_ACROSS_FILESYSTEM=1",
		"GIT_CONFIG=" + global, "GIT_CONFIG_GLOBAL=" + global, "GIT_CONFIG_SYSTEM=" + global, "GIT_CONFIG_NOSYSTEM=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.excludesFile", "GIT_CONFIG_VALUE_0=" + excludes, "GIT_CONFIG_PARAMETERS='core.bare=true'",
		"GIT_TRACE=" + trace, "GIT_TRACE2=" + trace, "GIT_EXEC_PATH=" + bin, "GIT_TEMPLATE_DIR=" + bin, "GIT_EDITOR=" + run("hook"),
		"GIT_SSH_COMMAND=" + run("ssh"), "GIT_EXTERNAL_DIFF=" + run("hook"), "GIT_ASKPASS=" + run("hook"), "GIT_PAGER=" + run("hook"),
		"GIT_LITERAL_PATHSPECS=1", "GIT_ICASE_PATHSPECS=1", "GIT_DEFAULT_HASH=sha256", "GIT_OPTIONAL_LOCKS=1", "GIT_PREFIX=src/",
		"GIT_ATTR_SOURCE=HEAD", "GIT_REPLACE_REF_BASE=refs/other/", "GIT_SHALLOW_FILE=" + excludes, "GIT_GRAFT_FILE=" + excludes, "GIT_QUARANTINE_PATH=" + other,
	}

	repository, elsewhere, before := tree(t, b.path(".git")), tree(t, b.out), withoutGit(tree(t, b.work))
	p := b.serve()
	session := p.newTracked(b.work)
	r := killRand(0)
	copies, entries := []map[string]node{}, []string{}
	for turn := range 20 {
		copies = append(copies, withoutGit(tree(t, b.work)))
		entries = append(entries, p.prompt(session, fmt.Sprintf("turn %d", turn)))
		for range 4 {
			switch name := fmt.Sprintf("src/d%d/f%d.txt", r.IntN(4), r.IntN(30)); r.IntN(4) {
			case 0:
				p.call("_oino/write", map[string]any{"sessionId": session, "path": b.path(name), "content": fmt.Sprintf("by a tool\r\nin turn %d\n", turn)})
			case 1:
				require.NoError(t, os.RemoveAll(b.path(name)))
			default:
				b.write(name, fmt.Sprintf("by a shell\nin turn %d\r\n", turn))
			}
		}
		p.endTurn(session)
		after := withoutGit(tree(t, b.work))
		if turn%3 == 2 {
			back := turn - r.IntN(3)
			require.Empty(t, p.rewind(session, entries[back], nil).Failed)
			requireSame(t, copies[back], withoutGit(tree(t, b.work)))
			if turn%2 == 0 {
				require.Empty(t, p.redo(session).Failed)
				requireSame(t, after, withoutGit(tree(t, b.work)))
			}
		}
	}
	last := withoutGit(tree(t, b.work))
	require.Empty(t, p.rewind(session, "start", map[string]any{"conversation": "rewind"}).Failed)
	requireSame(t, before, withoutGit(tree(t, b.work)))
	p.redo(session)
	requireSame(t, last, withoutGit(tree(t, b.work)))
	p.rewind(session, entries[0], map[string]any{"conversation": "fork"})
	require.Zero(t, p.exit())

	require.NoFileExists(t, mark, "something was run")
	require.NoFileExists(t, trace)
	require.Equal(t, elsewhere, tree(t, b.out))
	require.Equal(t, repository, tree(t, b.path(".git")))
	b.env = nil
	git(b.work, "-c", "core.fsmonitor=false", "fsck", "--strict")
}

// withoutGit is a tree without the repository.
func withoutGit(nodes map[string]node) map[string]node {
	maps.DeleteFunc(nodes, func(path string, _ node) bool { return path == ".git" || strings.HasPrefix(path, ".git/") })
	return nodes
}

// TestX7EightProcesses: eight processes with eight turns each in one tracked
// workspace, all at once; every second one is killed with its last turn open.
// Every checkpoint of every session is good, and holds nothing of another's.
func TestX7EightProcesses(t *testing.T) {
	t.Parallel()
	const processes, turns, files = 8, 8, 2
	b := newBox(t)
	name := func(p, f int) string { return fmt.Sprintf("shared%d/p%d", f, p) }
	content := func(p, turn, f int) string {
		switch {
		case turn < 0:
			return "in the beginning\n"
		case f == 0:
			return fmt.Sprintf("of turn %d\n", turn) // the same in all sessions: one content, many writers
		}
		return fmt.Sprintf("process %d turn %d\n", p, turn)
	}
	for p := range processes {
		for f := range files {
			b.write(name(p, f), content(p, -1, f))
		}
	}
	before := tree(t, b.work)
	var procs [processes]*process
	var sessions [processes]string
	var entries [processes][]string
	for i := range procs {
		procs[i] = b.serve()
	}
	var group errgroup.Group
	for i, p := range procs {
		group.Go(func() error {
			made, err := p.try("session/new", trackedParams(b.work))
			if err != nil {
				return err
			}
			sessions[i] = field[string](t, made, "sessionId")
			for turn := range turns {
				said, err := p.try("session/prompt", promptParams(sessions[i], fmt.Sprintf("turn %d", turn)))
				if err != nil {
					return err
				}
				entries[i] = append(entries[i], field[string](t, said, "_meta", "oino", "entryId"))
				for f := range files {
					params := map[string]any{"sessionId": sessions[i], "path": b.path(name(i, f)), "content": content(i, turn, f)}
					if _, err := p.try("_oino/write", params); err != nil {
						return err
					}
				}
				made := map[string]any{"sessionId": sessions[i], "path": b.path(fmt.Sprintf("new/p%d/t%d", i, turn)), "content": "n\n"}
				if _, err := p.try("_oino/write", made); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for i, p := range procs {
		if i%2 == 0 {
			p.die()
		} else {
			p.endTurn(sessions[i])
			require.Zero(t, p.exit())
		}
	}

	one := b.serve()
	for i := range procs {
		for turn := turns - 1; turn >= 0; turn-- {
			r := one.rewind(sessions[i], entries[i][turn], nil)
			require.Empty(t, r.Failed, "process %d turn %d", i, turn)
			require.Len(t, r.Restored, files)
			require.Equal(t, []string{b.path(fmt.Sprintf("new/p%d/t%d", i, turn))}, r.Deleted)
			for f := range files {
				require.Equal(t, content(i, turn-1, f), b.read(name(i, f)))
			}
		}
		if i%3 == 0 { // all of it again
			for range turns {
				require.Empty(t, one.redo(sessions[i]).Failed)
			}
			require.Empty(t, one.rewind(sessions[i], entries[i][0], nil).Failed)
		}
	}
	// The directory that all of them used belongs to the turn that made it, and
	// simply stays where that went back while others' files were in it. It may
	// be there, but only empty: else it cannot be removed.
	if err := os.Remove(b.path("new")); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	requireSame(t, before, tree(t, b.work))
}

// TestX10IgnoredThingsCostNothing: node_modules with very many files, ignored,
// and an untracked file of 5 GB. What they hold is not read, and a turn costs
// what it does without them.
func TestX10IgnoredThingsCostNothing(t *testing.T) {
	t.Parallel()
	ignored := 4_000
	long := os.Getenv("OINO_LONG") == "1"
	if long {
		ignored = 250_000
	}
	b := newBox(t)
	b.write(".gitignore", "node_modules/\n")
	for i := range 300 {
		b.write(fmt.Sprintf("src/d%d/f%d", i%10, i), fmt.Sprintf("%d\n", i))
	}
	p := b.serve()
	session := p.newTracked(b.work)
	turns := 0
	turn := func() time.Duration {
		begin := time.Now()
		entry := p.prompt(session, "go")
		turns++
		b.write("src/d0/f0", fmt.Sprintf("turn %d\n", turns))
		p.endTurn(session)
		took := time.Since(begin)
		require.Equal(t, []string{b.path("src/d0/f0")}, p.rewind(session, entry, nil).Restored)
		return took
	}
	fastest := func() time.Duration {
		least := turn()
		for range 4 {
			least = min(least, turn())
		}
		return least
	}
	without := fastest()

	for i := range ignored {
		dir := b.path(fmt.Sprintf("node_modules/m%d", i/100))
		if i%100 == 0 {
			require.NoError(t, os.MkdirAll(dir, 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("ignored\n"), 0o644))
	}
	huge := func(name string) {
		f, err := os.Create(b.path(name))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(5<<30))
		require.NoError(t, f.Close())
	}
	huge("dataset.bin")
	with := fastest()
	t.Logf("a turn takes %v without, %v with them", without, with)
	if long {
		require.Less(t, with, 2*without+50*time.Millisecond)
	}
	// One that a turn makes is not read either, unless it is so new that a change
	// of it need not show.
	p.prompt(session, "make one")
	huge("made.bin")
	made, err := os.Stat(b.path("made.bin"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return time.Since(made.ModTime()) > 100*time.Millisecond }, time.Minute, 10*time.Millisecond)
	read := p.bytesRead()
	p.endTurn(session)
	if read >= 0 {
		require.Less(t, p.bytesRead()-read, int64(8<<20), "what is not kept was read")
	}
	require.NoError(t, os.Remove(b.path("made.bin")))
	// A new process walks it anew.
	require.Zero(t, p.exit())
	again := b.serve()
	begin := again.bytesRead()
	p, session = again, again.newTracked(b.work)
	turn()
	if read >= 0 {
		require.Less(t, again.bytesRead()-begin, int64(8<<20), "what is not kept was read")
	}
	info, err := os.Stat(b.path("dataset.bin"))
	require.NoError(t, err)
	require.EqualValues(t, 5<<30, info.Size())
}

// bytesRead is how much a process has read, -1 where the system does not tell.
func (p *process) bytesRead() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.pid()))
	if runtime.GOOS != "linux" || err != nil {
		return -1
	}
	_, after, _ := strings.Cut(string(data), "rchar: ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// TestKilledWhileCapturing kills oinod in the middle of a capture: the first
// one, that of a prompt, that of a turn's end. The next open goes on from what
// was durable, and every rewind is right.
func TestKilledWhileCapturing(t *testing.T) {
	t.Parallel()
	const files = 400
	for round := range killRounds(12) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := killRand(5000 + round)
			b := newBox(t)
			name := func(i int) string { return fmt.Sprintf("d%d/f%d", i%17, i) }
			for i := range files {
				b.write(name(i), strings.Repeat(fmt.Sprintf("before %d\n", i), 100))
			}
			change := func(what string) {
				for i := range files {
					switch (i + r.IntN(3)) % 5 {
					case 0:
						b.write(name(i), strings.Repeat(what, 90))
					case 1:
						require.NoError(t, os.RemoveAll(b.path(name(i))))
					case 2:
						b.write(fmt.Sprintf("new/%d/%d", i%7, i), what)
					}
				}
			}
			kill := func(p *process, method string, params any) {
				_, err := p.ask(method, params)
				require.NoError(t, err)
				someTime(time.Duration(r.IntN(60)) * time.Millisecond)
				p.die()
			}
			p := b.serve()
			if round%3 == 0 { // in the first look
				kill(p, "session/new", trackedParams(b.work))
				p = b.serve()
			}
			before := tree(t, b.work)
			session := p.newTracked(b.work)
			open := map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}}
			first := p.prompt(session, "one")
			change("one\n")
			if round%3 == 1 { // at the turn's end
				kill(p, "_oino/turn_end", map[string]any{"sessionId": session})
				p = b.serve()
				p.call("session/resume", open)
			}
			p.endTurn(session)
			between := tree(t, b.work)
			if round%3 == 2 { // at a prompt
				kill(p, "session/prompt", promptParams(session, "two"))
				p = b.serve()
				p.call("session/resume", open)
			}
			second := p.prompt(session, "three")
			change("two\n")
			p.endTurn(session)
			last := tree(t, b.work)
			require.Empty(t, p.rewind(session, second, nil).Failed)
			requireSame(t, between, tree(t, b.work))
			require.Empty(t, p.rewind(session, first, nil).Failed)
			requireSame(t, before, tree(t, b.work))
			p.redo(session)
			p.redo(session)
			requireSame(t, last, tree(t, b.work))
			require.Zero(t, p.exit())
		})
	}
}
