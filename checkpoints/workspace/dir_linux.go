package workspace

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// names reads the kernel's own list, which says what most names are, and makes
// no string of a name that is known already:
//
//	0     8     16       18     19       (bytes)
//	┌─────┬─────┬────────┬──────┬──────┬───┐
//	│ ino │ off │ length │ type │ name │ 0…│
//	└─────┴─────┴────────┴──────┴──────┴───┘
func (d *dirFD) names(f func(name []byte, k kind)) error {
	buf := d.root.listings.Get().(*[]byte)
	defer d.root.listings.Put(buf)
	for {
		n, err := again(func() (int, error) { return unix.Getdents(d.fd, *buf) })
		if err != nil || n <= 0 {
			return err
		}
		for b := (*buf)[:n]; len(b) >= 20; {
			length := int(binary.NativeEndian.Uint16(b[16:]))
			if length < 20 || length > len(b) {
				return unix.EIO
			}
			name := b[19:length]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			if s := string(name); s != "." && s != ".." {
				f(name, kindOfType(b[18]))
			}
			b = b[length:]
		}
	}
}

func kindOfType(t byte) kind {
	switch t {
	case unix.DT_REG:
		return regular
	case unix.DT_DIR:
		return directory
	case unix.DT_LNK:
		return link
	case unix.DT_UNKNOWN:
		return noKind
	}
	return special
}
