package blobs

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// writerEnv makes the test binary store contents in the directory it names and
// say each that is synced, until it is killed.
const writerEnv = "OINO_TEST_STORE"

func storeUntilKilled(where string) {
	root, err := disk.Open(where)
	if err != nil {
		panic(err)
	}
	s := openSmall(root)
	for i := uint64(0); ; i++ {
		d, err := s.Put(noise(uint64(os.Getpid())<<32+i, 250))
		if err == nil && i%3 == 0 {
			err = s.Sync()
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if i%3 == 0 {
			fmt.Println(d)
		}
	}
}

// Processes that store at the same time and are killed in the middle of it:
// what each said is there, and the next goes on.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	root := openTemp(t)
	reader := Open(root)
	defer reader.Close()
	var said []Digest
	for range 4 {
		var running []*exec.Cmd
		var outputs []*bufio.Scanner
		for range 3 {
			c := exec.Command(os.Args[0], "-test.run=^$")
			c.Env = append(os.Environ(), writerEnv+"="+root.Name())
			out, err := c.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			running = append(running, c)
			outputs = append(outputs, bufio.NewScanner(out))
		}
		for i, c := range running {
			for n := 0; n < 15 && outputs[i].Scan(); n++ {
				d, err := hex.DecodeString(outputs[i].Text())
				require.NoError(t, err, outputs[i].Text())
				said = append(said, Digest(d))
			}
			require.NoError(t, c.Process.Kill())
			for outputs[i].Scan() {
				if line := outputs[i].Text(); len(line) == 64 {
					d, err := hex.DecodeString(line)
					require.NoError(t, err)
					said = append(said, Digest(d))
				}
			}
			c.Wait()
		}
		for _, d := range said {
			require.NoError(t, reader.Check(d))
		}
	}
	require.GreaterOrEqual(t, len(said), 4*3*15)
	lanes := map[string]bool{}
	for _, name := range names(t, root) {
		if lane, _, ok := strings.Cut(name, "-"); ok {
			lanes[lane] = true
		}
	}
	require.LessOrEqual(t, len(lanes), 3, "a lane that was left is taken again")
}
