package checkpoints

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

func ctimeOf(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// processUmask reads the umask without setting it, which would show in files
// that other goroutines make at that moment.
func processUmask() uint32 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		if _, rest, ok := bytes.Cut(status, []byte("\nUmask:")); ok {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			if m, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 8, 32); err == nil {
				return uint32(m)
			}
		}
	}
	m := syscall.Umask(0o077)
	syscall.Umask(m)
	return uint32(m)
}
