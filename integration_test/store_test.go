//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// run runs a command of oinod to its end and returns what it printed.
func (b *box) run(args ...string) (stdout, stderr string, code int) {
	bin, err := binary()
	if err != nil {
		return "", err.Error(), -1
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Env = b.work, b.environment()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestEightProcessesAndACollector: eight processes make 50 sessions each, fork
// and delete some, and some of the processes are killed, while gc runs again
// and again. Nothing that was answered is lost, no log and no content is
// damaged, every lock is free in the end, and what nobody needs is freed.
func TestEightProcessesAndACollector(t *testing.T) {
	t.Parallel()
	const processes, sessions = 8, 50
	b := newBox(t)
	type made struct{ id, path, before string }
	var all [processes][]made
	var procs [processes]*process
	for p := range processes {
		procs[p] = b.serve()
	}
	collect := func() error {
		out, errs, code := b.run("gc")
		if code != 0 && !strings.Contains(errs, "sessions were at work all the time") {
			return fmt.Errorf("gc: exit %d: %s%s", code, out, errs)
		}
		return nil
	}
	work := func(p, s int) error {
		on := procs[p]
		call := func(method string, params map[string]any, to any) error {
			result, err := on.try(method, params)
			if err != nil {
				return fmt.Errorf("%s: %w", method, err)
			}
			if to == nil {
				return nil
			}
			return json.Unmarshal(result, to)
		}
		// Contents come again and again, so that a dead one is often found
		// and named by another session just when it is collected.
		before := fmt.Sprintf("content %d\n%s", s%7, strings.Repeat("x", 3000))
		path := b.path(fmt.Sprintf("p%d_s%d", p, s))
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			return err
		}
		var session struct{ SessionID string }
		var fork struct{ SessionID string }
		if err := call("session/new", map[string]any{"cwd": b.work, "mcpServers": []any{}}, &session); err != nil {
			return err
		}
		id := map[string]any{"sessionId": session.SessionID}
		of := func(more map[string]any) map[string]any {
			more["sessionId"] = session.SessionID
			return more
		}
		for _, step := range []struct {
			method string
			params map[string]any
			to     any
		}{
			{"session/prompt", of(map[string]any{"prompt": []any{map[string]any{"type": "text", "text": "go"}}}), nil},
			{"_oino/write", of(map[string]any{"path": path, "content": fmt.Sprintf("of process %d\n", p)}), nil},
			{"_oino/state/put", of(map[string]any{"state": map[string]any{"n": s, "much": strings.Repeat("y", 6000)}}), nil},
			{"_oino/turn_end", id, nil},
			{"_oino/fork", id, &fork},
		} {
			if err := call(step.method, step.params, step.to); err != nil {
				return err
			}
		}
		if s%3 == 0 {
			if err := call("session/delete", id, nil); err != nil {
				return err
			}
			session.SessionID = fork.SessionID
		} else if err := call("session/delete", map[string]any{"sessionId": fork.SessionID}, nil); err != nil {
			return err
		} else if err := call("session/close", id, nil); err != nil {
			return err
		}
		all[p] = append(all[p], made{session.SessionID, path, before})
		return nil
	}
	var group, collectors errgroup.Group
	done := make(chan struct{})
	collectors.Go(func() error {
		for {
			if err := collect(); err != nil {
				return err
			}
			select {
			case <-done:
				return nil
			default:
			}
		}
	})
	for p := range processes {
		group.Go(func() error {
			for s := range sessions {
				if err := work(p, s); err != nil {
					return fmt.Errorf("process %d, session %d: %w", p, s, err)
				}
			}
			if p%2 == 0 {
				procs[p].die()
			}
			return nil
		})
	}
	err := group.Wait()
	close(done)
	require.NoError(t, collectors.Wait())
	require.NoError(t, err)
	require.NoError(t, collect())

	out, errs, code := b.run("check", "--json")
	require.Zero(t, code, "%s%s", out, errs)
	var report struct {
		Sessions, Blobs int
		Findings        []any
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Empty(t, report.Findings)
	require.Equal(t, processes*sessions, report.Sessions)

	out, _, _ = b.run("sessions", "--json")
	listed := []struct{ SessionID string }{}
	require.NoError(t, json.Unmarshal([]byte(out), &listed))
	require.Len(t, listed, processes*sessions)
	last := b.serve()
	for p := range processes {
		if p%2 == 1 { // it is still there, and has closed what it kept
			procs[p].kill()
		}
		for s, m := range all[p] {
			if s%10 != p%10 {
				continue
			}
			result := last.call("_oino/checkpoints", map[string]any{"sessionId": m.id})
			var l struct{ Checkpoints []struct{ EntryID string } }
			require.NoError(t, json.Unmarshal(result, &l))
			require.Len(t, l.Checkpoints, 1)
			last.call("_oino/state/get", map[string]any{"sessionId": m.id})
			last.call("_oino/rewind", map[string]any{"sessionId": m.id, "entryId": l.Checkpoints[0].EntryID})
			now, err := os.ReadFile(m.path)
			require.NoError(t, err)
			require.Equal(t, m.before, string(now))
		}
	}
	for _, s := range listed {
		last.call("session/delete", map[string]any{"sessionId": s.SessionID})
	}
	require.Zero(t, last.exit())
	require.NoError(t, collect())
	out, _, _ = b.run("check", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Zero(t, report.Sessions)
	require.Zero(t, report.Blobs, "what nobody needs is freed")
}

// masked runs a command of oinod under a umask, with the lines as its input,
// and returns what it printed.
func (b *box) masked(umask string, lines []string, args ...string) string {
	b.t.Helper()
	bin, err := binary()
	require.NoError(b.t, err)
	cmd := exec.Command("/bin/sh", append([]string{"-c", "umask " + umask + `; exec "$@"`, "sh", bin}, args...)...)
	cmd.Dir, cmd.Env = b.work, b.environment()
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if b.unprivileged {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.Output()
	require.NoError(b.t, err, "%s", out)
	require.NotContains(b.t, string(out), `"error"`)
	return string(out)
}

// Everything in the agent directory is its owner's alone, whatever the umask,
// and with one that takes everything away it can still be used.
func TestPrivateWhateverTheUmask(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"000", "022", "377", "777"} {
		b := newBox(t)
		b.dropPrivileges()
		b.agent = filepath.Join(b.out, "deep", "er", "agent")
		b.write("a", "v0\n")
		b.own(b.path("a"))
		line := func(id int, method string, params map[string]any) string {
			l, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
			require.NoError(t, err)
			return string(l)
		}
		var made struct{ Result struct{ SessionID string } }
		out := b.masked(umask, []string{line(1, "session/new", map[string]any{"cwd": b.work, "mcpServers": []any{},
			"_meta": map[string]any{"oino": map[string]any{"tracking": "workspace"}}})}, "serve")
		require.NoError(t, json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &made))
		id := made.Result.SessionID
		b.masked(umask, []string{
			line(1, "session/prompt", promptParams(id, "go")),
			line(2, "_oino/write", map[string]any{"sessionId": id, "path": b.path("a"), "content": "v1\n"}),
			line(3, "_oino/state/put", map[string]any{"sessionId": id, "state": strings.Repeat("x", 5000)}),
			line(4, "_oino/fork", map[string]any{"sessionId": id}),
			line(5, "session/close", map[string]any{"sessionId": id}),
			line(6, "session/list", map[string]any{}),
		}, "serve")
		logs, err := filepath.Glob(filepath.Join(b.agent, "sessions", "*", "*.jsonl"))
		require.NoError(t, err)
		require.Len(t, logs, 2)
		info, err := os.Stat(logs[0])
		require.NoError(t, err)
		old := info.ModTime().AddDate(0, 0, -3)
		require.NoError(t, os.Chtimes(logs[0], old, old))
		b.masked(umask, nil, "gc")
		compressed, err := filepath.Glob(filepath.Join(b.agent, "sessions", "*", "*.zst"))
		require.NoError(t, err)
		require.Len(t, compressed, 1)
		files := 0
		require.NoError(t, filepath.WalkDir(filepath.Join(b.out, "deep"), func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			want := os.FileMode(0o600)
			if d.IsDir() {
				want = 0o700
			}
			require.Equal(t, want, info.Mode().Perm(), "umask %s: %s", umask, path)
			files++
			return nil
		}))
		require.Greater(t, files, 14)
		require.DirExists(t, filepath.Join(b.agent, "workspaces"))
	}
}
