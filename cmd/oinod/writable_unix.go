//go:build unix

package main

import "golang.org/x/sys/unix"

// writable says why nothing can be made in dir.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
