package checkpoints

import "testing"

func makeFifo(t testing.TB, _ string) {
	t.Helper()
	t.Skip("there are no pipes with names in directories here")
}
