package blobs

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

func openTemp(t testing.TB) disk.Root {
	t.Helper()
	root, err := disk.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

func TestSmoke(t *testing.T) {
	root := openTemp(t)
	s := Open(root)
	var ds []Digest
	for i := range 5000 {
		d, err := s.Put([]byte(fmt.Sprintf("content %d %s", i, bytes.Repeat([]byte("x"), i))))
		require.NoError(t, err)
		ds = append(ds, d)
	}
	require.NoError(t, s.Sync())
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	bd, err := s.Put(big)
	require.NoError(t, err)
	for _, d := range ds {
		_, err := s.Get(d, 0)
		require.NoError(t, err)
	}
	got, err := s.Get(bd, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(big, got))
	n, b, err := s.Stats()
	t.Log(n, b, err)
	other := Open(root)
	_, err = other.Get(ds[77], 0)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	got, err = other.Get(ds[77], 0)
	require.NoError(t, err)
	c, err := other.Collect(func(d Digest) bool { return d == ds[77] }, false)
	t.Log(c, err)
	n, b, err = other.Stats()
	t.Log(n, b, err)
	_, err = other.Get(ds[77], 0)
	require.NoError(t, err)
	_, err = other.Get(ds[78], 0)
	require.ErrorIs(t, err, ErrMissing)
	require.NoError(t, other.Close())
}
