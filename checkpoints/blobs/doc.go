// Package blobs keeps file contents by their SHA-256, for all sessions and
// processes of one agent directory.
package blobs
