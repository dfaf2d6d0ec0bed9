//go:build unix

package integration

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// acpx returns what runs acpx, with its agent, until it has done what it was told.
func (b *box) acpx(modules, agent string) func(args ...string) string {
	environment := append(b.clientEnvironment(), b.leash()...)
	return func(args ...string) string {
		b.t.Helper()
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*patience)
		defer cancel()
		all := append([]string{filepath.Join(modules, ".bin", "acpx"), "--cwd", b.work, "--approve-all", "--ttl", "1", "--timeout", "20", "--agent", agent}, args...)
		for {
			cmd := exec.CommandContext(ctx, "node", all...)
			cmd.Env = environment
			out, err := cmd.CombinedOutput()
			if err != nil && ctx.Err() == nil && strings.Contains(string(out), "Queue owner is shutting down") {
				continue // its own process of the prompt before, which takes nothing more
			}
			require.NoError(b.t, err, "acpx %v: %s", args, out)
			return string(out)
		}
	}
}

// leash is an environment in which no Node process outlives the test, not even
// one that was left behind and belongs to nobody, as those of acpx that own its
// queues: it would make its directories again when they have been removed. Each
// connects to us first of all, and ends when it reads our end of that; its own is
// read when it is no more.
func (b *box) leash() []string {
	b.t.Helper()
	script, err := filepath.Abs(filepath.Join("clients", "leash.cjs"))
	require.NoError(b.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	var held []*net.TCPConn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			held = append(held, c.(*net.TCPConn))
		}
	}()
	b.t.Cleanup(func() {
		l.Close()
		<-ended
		require.NotEmpty(b.t, held, "nobody came")
		for _, c := range held {
			c.CloseWrite()
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				b.t.Error("a Node process does not end")
			}
			c.Close()
		}
	})
	return []string{"NODE_OPTIONS=--require=" + strconv.Quote(script), "OINO_LEASH=" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
}
