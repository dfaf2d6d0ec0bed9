//go:build unix

package checkpoints

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func makeFifo(t testing.TB, at string) {
	t.Helper()
	require.NoError(t, unix.Mkfifo(at, 0o644))
}
