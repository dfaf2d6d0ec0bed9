//go:build unix

package integration

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// wild makes random trees and does to them what shells, generators and version
// control do. The names are few, so that things meet: a file takes a
// directory's place, a link a file's, and one thing another's that went.
type wild struct {
	*box
	r     *rand.Rand
	rules bool // the ignore rules change too
	// later: what rules leave out may have been seen first within the span that
	// a rewind is about, because a tool named it.
	later bool
}

var wildNames = []string{"a", "b", "c d", "e.log", "ignored", "x.sh", "é", "[id]", "A", "-n", "deep", "new\nline"}

// name is where something may be or come, up to four names deep.
func (w *wild) name() string {
	names := make([]string, 1+min(w.r.IntN(4), w.r.IntN(4)))
	for i := range names {
		names[i] = wildNames[w.r.IntN(len(wildNames))]
	}
	return strings.Join(names, "/")
}

// all are the paths that are there, but the user's.
func (w *wild) all() []string {
	var all []string
	filepath.WalkDir(w.work, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.work, path)
		switch {
		case err != nil || rel == ".":
			return nil
		case rel == "mine" || rel == ".gitignore":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		all = append(all, rel)
		return nil
	})
	return all
}

// some is a path that is there, or may be.
func (w *wild) some() string {
	all := w.all()
	if len(all) == 0 || w.r.IntN(5) == 0 {
		return w.name()
	}
	return all[w.r.IntN(len(all))]
}

func (w *wild) content() []byte {
	switch w.r.IntN(12) {
	case 0:
		return nil
	case 1:
		b := make([]byte, 3000)
		for i := range b {
			b[i] = byte(w.r.Uint32())
		}
		return b
	}
	return fmt.Appendf(nil, "%d\nline\r\n%d", w.r.IntN(9), w.r.IntN(3))
}

var wildModes = []uint32{0o644, 0o600, 0o755, 0o444, 0o400, 0o664, 0o4755, 0o000}

// act does one thing. What does not go does not matter, as in a shell.
func (w *wild) act() {
	path := func(rel string) string { return filepath.Join(w.work, filepath.FromSlash(rel)) }
	p := path(w.some())
	switch w.r.IntN(17) {
	case 0, 1, 2: // make
		p = path(w.name())
		os.MkdirAll(filepath.Dir(p), 0o755)
		os.WriteFile(p, w.content(), fs.FileMode(wildModes[w.r.IntN(6)]))
	case 3, 4: // modify in place
		if f, err := os.OpenFile(p, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0); err == nil {
			f.Write(w.content())
			f.Close()
		}
	case 5: // the same size, and the old time back
		info, err := os.Lstat(p)
		if err != nil || !info.Mode().IsRegular() {
			return
		}
		data, err := os.ReadFile(p)
		if err != nil || len(data) == 0 {
			return
		}
		data[w.r.IntN(len(data))]++
		if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
			f.Write(data)
			f.Close()
		}
		os.Chtimes(p, info.ModTime(), info.ModTime())
	case 6: // through a temporary name
		tmp := p + ".tmp"
		if os.WriteFile(tmp, w.content(), 0o644) == nil && os.Rename(tmp, p) != nil {
			os.Remove(tmp)
		}
	case 7:
		if info, err := os.Lstat(p); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			if info.IsDir() {
				os.Chmod(p, []fs.FileMode{0o755, 0o700, 0o750, 0o555}[w.r.IntN(4)])
			} else {
				syscall.Chmod(p, wildModes[w.r.IntN(len(wildModes))])
			}
		}
	case 8: // move
		os.Rename(p, path(w.name()))
	case 9: // swap
		q, tmp := path(w.some()), path("swap")
		if os.Rename(p, tmp) == nil && (os.Rename(q, p) != nil || os.Rename(tmp, q) != nil) {
			os.Rename(tmp, p)
		}
		os.RemoveAll(tmp)
	case 10:
		os.Remove(p)
	case 11:
		os.RemoveAll(p)
	case 12:
		os.MkdirAll(path(w.name()), 0o755)
	case 13: // a link, to what is there, is not, lies outside
		targets := []string{"a", "../b", "nowhere", w.out, "deep/a", ".", w.some()}
		p = path(w.name())
		os.MkdirAll(filepath.Dir(p), 0o755)
		if w.r.IntN(2) == 0 {
			os.RemoveAll(p)
		}
		os.Symlink(targets[w.r.IntN(len(targets))], p)
	case 14: // two names of one file
		os.Link(p, path(w.name()))
	case 15: // another kind in its place
		os.RemoveAll(p)
		switch w.r.IntN(3) {
		case 0:
			os.WriteFile(p, w.content(), 0o644)
		case 1:
			os.MkdirAll(filepath.Join(p, wildNames[w.r.IntN(len(wildNames))]), 0o755)
		default:
			os.Symlink("b", p)
		}
	case 16: // the rules, or a directory made anew with what it held
		if w.rules {
			lines := []string{"*.log\n/ignored/\n", "*.log\n", "", "/ignored/\nb\n", "deep\n"}
			os.WriteFile(path(".gitignore"), []byte(lines[w.r.IntN(len(lines))]), 0o644)
			return
		}
		if q := path("again"); os.CopyFS(q, os.DirFS(p)) == nil {
			os.RemoveAll(p)
			os.Rename(q, p)
		}
		os.RemoveAll(path("again"))
	}
}

// ignorable reports whether rules may leave a path out.
func (w *wild) ignorable(path string) bool {
	for i, name := range strings.Split(path, "/") {
		if strings.HasSuffix(name, ".log") || name == "ignored" && i == 0 || w.rules && (name == "b" || name == "deep") {
			return true
		}
	}
	return false
}

// back checks what a rewind has made of the tree: everywhere what was there when
// the turn began. What rules leave out may be that or what it was just before
// the rewind, nothing else; a directory that holds some of it may be in the way
// of what was there before, if that is said.
func (w *wild) back(then, before, now map[string]node, failed []string) {
	w.t.Helper()
	same := func(path string, a, b map[string]node) bool {
		x, inA := a[path]
		y, inB := b[path]
		return inA == inB && x.kind == y.kind && x.mode == y.mode && x.data == y.data
	}
	excused := func(path string) bool { // something of before that rules leave out lies there, or below
		// A rule that is about directories leaves out nothing else.
		covered := path == "ignored" && !w.rules && !w.later && then[path].kind != "" && then[path].kind != "dir"
		if w.ignorable(path) && !covered {
			return true
		}
		for p := range before {
			if strings.HasPrefix(p, path+"/") && w.ignorable(p) {
				return true
			}
		}
		return false
	}
	said := map[string]bool{}
	for _, path := range failed {
		rel, err := filepath.Rel(w.work, path)
		require.NoError(w.t, err)
		said[rel] = true
		held := excused(rel)
		for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
			held = held || excused(dir)
		}
		require.True(w.t, held, "failed, and nothing was in the way: %q", rel)
	}
	var wrong []string
	for _, path := range slices.Sorted(maps.Keys(union(then, before, now))) {
		switch {
		case strings.HasPrefix(path+"/", "mine/"):
			if !same(path, now, before) {
				wrong = append(wrong, fmt.Sprintf("the user's %q was touched", path))
			}
		case same(path, now, then):
		case excused(path) && (same(path, now, before) || w.later):
		case said[path] && same(path, now, before):
		case now[path].kind == "dir" && excused(path) && (then[path].kind == "" || then[path].kind == "dir"):
		default:
			above := false // what could not come back keeps what is in it from it
			for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
				above = above || said[dir]
			}
			if !above || !same(path, now, before) {
				wrong = append(wrong, fmt.Sprintf("%q is %s, was %s, and %s before the rewind", path, now[path], then[path], before[path]))
			}
		}
	}
	require.Empty(w.t, wrong)
}

func union(trees ...map[string]node) map[string]node {
	all := map[string]node{}
	for _, nodes := range trees {
		maps.Copy(all, nodes)
	}
	return all
}

// TestWildTurns plays random turns on random trees, with a copy of the tree
// taken at each prompt. A rewind to each turn brings back the copy: bytes,
// modes, links, empty directories; a redo brings back what was there. In half
// of the rounds the user works between the turns, in a directory of their own,
// which no rewind touches, unless it is asked to take back all.
func TestWildTurns(t *testing.T) {
	t.Parallel()
	rounds := 24
	if raceEnabled {
		rounds = 12
	}
	if os.Getenv("OINO_LONG") == "1" {
		rounds = 600
	}
	if given := os.Getenv("OINO_ROUND"); given != "" {
		var round int
		_, err := fmt.Sscan(given, &round)
		require.NoError(t, err)
		wildRound(t, round)
		return
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			wildRound(t, round)
		})
	}
}

func wildRound(t *testing.T, round int) {
	w := &wild{box: newBox(t), r: killRand(9000 + round), rules: round%4 == 3}
	r, user, tools := w.r, round%2 == 1, round%3 == 0
	w.later = tools
	t.Cleanup(w.openAll)
	if round%8 != 7 {
		w.write(".gitignore", "*.log\n/ignored/\n")
	}
	for range 5 + r.IntN(40) {
		w.act()
	}
	w.write("mine/m", "mine\n")
	p := w.serve()
	session := p.newTracked(w.work)
	var copies []map[string]node
	var entries []string
	took := func() map[string]node { return tree(t, w.work) }
	for turn := range 2 + r.IntN(4) {
		copies = append(copies, took())
		entries = append(entries, p.prompt(session, fmt.Sprintf("turn %d", turn)))
		for range r.IntN(14) {
			w.act()
			if !tools || r.IntN(3) > 0 {
				continue
			}
			if target := w.path(w.some()); r.IntN(2) == 0 {
				p.try("_oino/write", map[string]any{"sessionId": session, "path": target, "content": string(w.content())})
			} else {
				p.try("_oino/record", map[string]any{"sessionId": session, "paths": []string{target}})
			}
		}
		if r.IntN(6) == 0 { // it goes on in another process
			if r.IntN(2) == 0 {
				p.die()
			} else {
				require.Zero(t, p.exit())
			}
			p = w.serve()
			p.call("session/resume", map[string]any{"sessionId": session, "cwd": w.work, "mcpServers": []any{}})
			w.act()
		}
		p.endTurn(session)
		if user {
			for range r.IntN(3) {
				name := fmt.Sprintf("mine/%d", r.IntN(4))
				if r.IntN(3) == 0 {
					os.Remove(w.path(name))
				} else {
					w.write(name, fmt.Sprintf("mine, after turn %d\n", turn))
				}
			}
		}
	}
	last := took()
	check := func(turn int, more map[string]any, before map[string]node) {
		t.Helper()
		var failed []string
		for _, f := range p.rewind(session, entries[turn], more).Failed {
			failed = append(failed, f.Path)
		}
		w.back(copies[turn], before, took(), failed)
	}
	for _, turn := range r.Perm(len(entries)) {
		before := took()
		check(turn, nil, before)
		if len(differences(before, took())) > 0 { // else there is nothing to redo
			p.redo(session)
		}
		requireSame(t, last, took())
	}
	// One after the other, and all of them again.
	stack := []map[string]node{took()}
	for turn := len(entries) - 1; turn >= 0; turn-- {
		if r.IntN(3) == 0 {
			continue
		}
		before := took()
		_, err := p.try("_oino/rewind", map[string]any{"sessionId": session, "entryId": entries[turn], "dryRun": true})
		require.NoError(t, err)
		requireSame(t, before, took())
		check(turn, nil, before)
		if after := took(); len(differences(before, after)) > 0 {
			stack = append(stack, after)
		}
	}
	for i := len(stack) - 2; i >= 0; i-- {
		p.redo(session)
		requireSame(t, stack[i], took())
	}
	if user { // all, the user's work too, as it was at the newest prompt or end of a turn
		p.prompt(session, "a boundary")
		p.endTurn(session)
		turn := r.IntN(len(entries))
		p.rewind(session, entries[turn], map[string]any{"scope": "all"})
		now := took()
		for path := range union(copies[turn], now) {
			if strings.HasPrefix(path, "mine/") {
				require.Equal(t, copies[turn][path].data, now[path].data, path)
			}
		}
		if len(differences(last, now)) > 0 {
			p.redo(session)
		}
		requireSame(t, last, took())
	}
	require.Zero(t, p.exit())
}
