package journal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// holderEnv makes the test binary take a lock, say so, and wait to be killed.
const holderEnv = "OINO_TEST_HOLD_LOCK"

func holdLock(path string) {
	if _, err := TryLock(path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	bufio.NewReader(os.Stdin).ReadByte() // until the test ends, if it forgets us
	os.Exit(0)
}

func lockPath(t *testing.T) string { return filepath.Join(t.TempDir(), "a.lock") }

func TestOneHolderAtATime(t *testing.T) {
	path := lockPath(t)
	l, err := TryLock(path)
	require.NoError(t, err)
	_, err = TryLock(path)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)
	require.EqualError(t, err, fmt.Sprintf("locked by process %d", os.Getpid()))
	if os.PathSeparator == '/' {
		i, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), i.Mode())
	}
	require.NoError(t, l.Unlock())
	require.NoError(t, l.Unlock(), "a second time")
	require.FileExists(t, path)
	l, err = TryLock(path)
	require.NoError(t, err)
	require.NoError(t, l.Unlock())
}

func TestAKilledHolderHoldsNothing(t *testing.T) {
	path := lockPath(t)
	holder := exec.Command(os.Args[0], "-test.run=^$")
	holder.Env = append(os.Environ(), holderEnv+"="+path)
	in, err := holder.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	_, err = TryLock(path)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, holder.Process.Pid, locked.PID)

	require.NoError(t, holder.Process.Kill())
	holder.Wait()
	l, err := TryLock(path)
	require.NoError(t, err)
	_, err = TryLock(path)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID, "not the killed one's")
	require.NoError(t, l.Unlock())
}

func TestARemovedLockIsTakenAnew(t *testing.T) {
	path := lockPath(t)
	l, err := TryLock(path)
	require.NoError(t, err)
	require.NoError(t, l.Remove())
	require.NoFileExists(t, path)
	require.NoError(t, l.Remove(), "a second time")
	l, err = TryLock(path)
	require.NoError(t, err)
	require.NoError(t, l.Unlock())
}

// A locker may have opened the file just before it was removed: it then has
// locked what no name leads to, and must see that.
func TestALockOnARemovedFileIsNone(t *testing.T) {
	path := lockPath(t)
	require.NoError(t, makeLockFile(path))
	f := flock.New(path, flock.SetFlag(os.O_RDWR))
	ok, err := f.TryLock()
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, stillThere(path, f))
	if os.PathSeparator != '/' {
		t.Skip("an open file cannot be removed here")
	}
	require.NoError(t, os.Remove(path))
	require.False(t, stillThere(path, f))
	l, err := TryLock(path)
	require.NoError(t, err)
	require.False(t, stillThere(path, f))
	require.NoError(t, l.Unlock())
	require.NoError(t, f.Unlock())
}

// Lockers and removers at once: whoever has the lock is alone.
func TestNobodyLocksARemovedFile(t *testing.T) {
	path := lockPath(t)
	var inside atomic.Int32
	var together sync.WaitGroup
	for worker := range 8 {
		together.Go(func() {
			for range 1000 {
				l, err := TryLock(path)
				if err != nil {
					var locked *LockedError
					if !errors.As(err, &locked) {
						t.Error(err)
					}
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				inside.Add(-1)
				if worker%2 == 0 {
					err = l.Remove()
				} else {
					err = l.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	together.Wait()
}

func TestALockThatCannotBeMadeSaysWhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "a.lock")
	_, err := TryLock(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)
}
