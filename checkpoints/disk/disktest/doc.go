// Package disktest is a disk for tests: a file system in memory that fails
// when told to and remembers what was synced. Only tests import it.
//
// # Faults
//
// FailAt makes the n-th operation from then on fail with an error of the
// test's choice; a write that fails has written half of its bytes. A test
// counts n up until a run gets through without Fired: then each operation has
// failed once. Closing never fails and is not counted. FailIf asks a function
// instead.
//
// # Power cuts
//
// A file's bytes and mode outlive a power cut as they were at its last Sync. A
// name that was made, renamed or removed outlives it once its directory was
// synced; a rename is one thing, and is there as a whole when either of its
// directories was. CutAt lets k operations that write happen and fails all
// that follow. AfterPowerCut is, at any moment, a new file system with what
// the old one would come back with: what was synced, and of the rest what
// keep is pleased to keep, name by name and page by page. A page that a file
// grew by and that is not kept is full of zeros.
//
// # What it is not
//
// It knows no owners, no umask and no permissions: whoever opens may. FileInfo
// has no Sys. A device or FIFO can be put there with Special, and opening it is
// an error that no disk gives, so that a test sees it.
package disktest
