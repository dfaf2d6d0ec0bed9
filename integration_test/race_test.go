//go:build unix && race

package integration

// raceEnabled: the binary is built as these tests are.
const raceEnabled = true
