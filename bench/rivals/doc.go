// Package rivals is what oinod is measured beside: the ways in which the same
// job is usually done, each as fast as it is without tricks. None of them is
// handicapped: where oinod syncs and a rival does not, the rival's unwritten
// bytes are synced outside its time, and outside oinod's.
//
//   - Seed: one JSON index, written in full and renamed at every record, one
//     file per snapshot, no sync.
//   - Git: git status, git add, and the checkpoint that tools make with git (a
//     temporary index, read-tree, add, write-tree, commit-tree, update-ref).
//   - Copy: cp -r.
//   - Pipe: cat in both directions between a client and an agent.
//   - ReadLogs: a listing of sessions that reads every log.
package rivals
