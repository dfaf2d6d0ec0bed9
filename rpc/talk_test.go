package rpc

import (
	"bufio"
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oino-dev/oinod/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// talk is a client on the other end of serve, in a synctest bubble: waiting
// for something that does not come fails at once.
type talk struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	stop  context.CancelFunc // as SIGTERM would
	ended chan struct{}
	err   error // of serve, once ended
	out   io.Closer
}

// dial runs f, a serve of some kind, with this client on its other end.
func dial(t *testing.T, f func(ctx context.Context, in io.Reader, out io.Writer) error) *talk {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	k := &talk{t: t, in: inW, lines: make(chan string, 100000), stop: stop, ended: make(chan struct{}), out: outR}
	go func() {
		defer close(k.lines)
		for lines := bufio.NewReader(outR); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			k.lines <- line[:len(line)-1]
		}
	}()
	go func() {
		defer close(k.ended)
		defer outW.Close()
		k.err = f(ctx, inR, outW)
	}()
	t.Cleanup(func() { // ends whatever a failed test left
		stop()
		inW.Close()
		outR.Close()
		<-k.ended
	})
	return k
}

// start serves methods, which may use the client they are given.
func start(t *testing.T, methods func(*client) []*method, setups ...func(*client)) *talk {
	t.Helper()
	return dial(t, func(ctx context.Context, in io.Reader, out io.Writer) error {
		config := Config{In: in, Out: out, Log: zerolog.Nop(), Limits: session.Limits{MaxMessageBytes: 1 << 20}}
		table := methods(nil)
		return serve(ctx, config, table, func(c *client) {
			for i, m := range methods(c) { // made again, now that there is a client
				*table[i] = *m
			}
			for _, setup := range setups {
				setup(c)
			}
		}, func() {})
	})
}

// send writes lines as the client does.
func (k *talk) send(lines ...string) {
	k.t.Helper()
	for _, line := range lines {
		_, err := io.WriteString(k.in, line+"\n")
		require.NoError(k.t, err)
	}
}

// want takes the next lines, which must be these.
func (k *talk) want(lines ...string) {
	k.t.Helper()
	for _, line := range lines {
		require.Equal(k.t, line, k.next())
	}
}

// next takes the next line, or "" if there will be none unless the client
// says something.
func (k *talk) next() string {
	k.t.Helper()
	synctest.Wait()
	select {
	case line := <-k.lines:
		return line
	default:
		return ""
	}
}

// quiet asserts that nothing is said.
func (k *talk) quiet() {
	k.t.Helper()
	require.Empty(k.t, k.next())
}

// eof ends the input and waits for the end.
func (k *talk) eof() error {
	k.in.Close()
	<-k.ended
	return k.err
}

// bubble runs a test in fake time.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// gate is a method that waits until the test lets it go on.
type gate struct {
	open chan string

	mu      sync.Mutex
	reached []string // ids of requests that got there, in order
}

func newGate() *gate { return &gate{open: make(chan string)} }

func (g *gate) run(ctx context.Context, t *task) (any, error) {
	g.mu.Lock()
	g.reached = append(g.reached, t.key)
	g.mu.Unlock()
	select {
	case word := <-g.open:
		return word, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *gate) arrived() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.reached)
}
