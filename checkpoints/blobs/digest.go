package blobs

import (
	"encoding/hex"
	"fmt"
)

// Digest names a content: its SHA-256.
type Digest [32]byte

// String is the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is the digest in hex.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) != 2*len(d) {
		return fmt.Errorf("a digest of %d characters, want %d", len(b), 2*len(d))
	}
	_, err := hex.Decode(d[:], b)
	return err
}
