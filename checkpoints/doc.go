// Package checkpoints knows what paths of a workspace were and brings them
// back. It hides bytes on disk and in the workspace, and knows nothing of
// conversations.
//
// # Looking
//
// A Workspace is the roots of a session. Resolve turns what a peer calls a
// path into the one name the path has here; Look says what it is now; Capture
// does so and keeps its contents, so that it can come back. Absent is only what
// the system says does not exist, below directories that were seen; whatever
// else goes wrong is Uncovered. What is no regular file is never opened.
//
// # Rewinding
//
// A rewind is a plan, then an act. NewPlan is a pure function from what is
// known of each path to steps and failures: the decision table. It sees only
// paths that the session's own turns touched; what is not in its input cannot
// be harmed. Prepare sees that every content the plan needs is there, saves the
// present, and fixes the temporary names. The caller then makes the prepared
// plan (the intent) durable and calls Act, which can be called again with the
// same intent after a crash at any point: it finishes what was begun.
//
// Act goes through the whole plan in phases, so that a full disk or a damaged
// content is met before anything has changed:
//
//	open        directories that do not let their owner write are opened for the time
//	take stock  when recovering: how far did the last Act come? (see takeStock)
//	stage       all new contents, verified, under temporary names, synced
//	set aside   what is of another kind than what shall come, under a temporary name
//	place       each path is looked at once more, then swapped with the new file and
//	            looked at again (see supplant), or made over nobody where nothing was
//	remove      what shall be gone and what was set aside; directories only when empty
//	finish      modes of directories, and a last sync
//
// A path whose step fails keeps what it had and is named with the cause; the
// others go on. At any moment a path holds all of what it was, all of what it
// shall be, or (between set aside and place) nothing, with what it was beside it.
//
// # Not promised
//
// Who saves a file in the instant between its last look and the swap gets it
// back. Where the system cannot swap two names (it can on Linux, on most file
// systems), a file is replaced by a rename, and what is saved in that instant is
// lost; so is what somebody writes to a file that he has opened before it was
// replaced and writes to after. A replaced file is a new one under the old
// name: its other names (hard links) keep the old bytes, and extended
// attributes and access lists stay with those. Owners are kept where the
// process may give files away. On a file system that cannot sync, nothing is
// durable.
//
// # Measured
//
// Rewinding 10,000 changed files of 4 KiB, on 2 cores and ext4, takes twice as long
// as the least that replaces as many durably (new files, a sync, renames, a
// sync), which takes 1.5 to 1.7 times as long as cp -r. Of the processor's time:
//
//	look at it and take its digest                   14 %
//	stage: make the file, read and verify what       40 %, a fifth of it zstd, a
//	shall come back, write it                        third the kernel making it
//	place: look once more, swap, read, remove        33 %, most of it the kernel
//	                                                 freeing the old file
//	plan, intent and outcome, on one core            13 %
//
// The four syncs, of the intent, the new files, their names and the outcome, are
// a sixth of the time for ten thousand files, and nearly all of it for three: 5 ms.
//
// What had made it longer, the heaviest first: opening every directory on the
// way anew (see handle); reading the file again to save it although nothing had
// touched it since the look; reading and decoding the content once to verify and
// once to write it, and doing that by itself, where making files leaves half of
// two cores waiting for locks of the file system; what os adds to a system call
// (see disk.OpenDir); two workers in one directory (see each); entropy coding
// of small contents (see blobs); encoding/json for the lists of the records (see
// AppendSteps); setting a mode that the file had already; memory for each file
// read.
//
// What did not help: asking the kernel to begin writing each file at once
// (sync_file_range), a sync of the first half beside the making of the second,
// more workers than cores, one worker that swaps and one that removes. What would
// help and is not sound: to take a file for what the turn's end has read because
// its times are still the same, or what was swapped out for what was looked at.
// A program that has mapped it can write without changing them.
//
// Where thousands of files were removed in the last minutes, ext4 looks long
// for an inode that was not in use lately: making a file takes ten times as
// long then, for a rewind as for cp.
//
// A capture takes 50 µs, half of it zstd; many at once run on all cores.
package checkpoints
