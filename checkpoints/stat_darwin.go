package checkpoints

import "syscall"

func ctimeOf(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }

// processUmask reads the umask the only way there is: by setting it, to the
// strictest for that moment.
func processUmask() uint32 {
	m := syscall.Umask(0o077)
	syscall.Umask(m)
	return uint32(m)
}
