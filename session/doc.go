// Package session knows what a conversation is and who may act on it.
//
// # One log, one fold
//
// A session is one log: its entries, what its turns did to files, its rewinds
// are records of several kinds in one order. What the session is at any moment
// (the tree of entries, the leaf, turns, intervals, the list of checkpoints,
// the redo stack, labels) is a pure fold over them (fold.go, intervals.go). Nothing else
// changes that state, so what is read back after a crash is what was there. A
// request's records are one append; the order is contents, then the log, then
// the effect on the workspace, then the answer.
//
// # Intervals
//
// An interval is what one turn did to one path: before and after. It is opened
// once a path and turn, when the path is first recorded or written, and a second
// time only where somebody else changed the path in between (a seam). Its after
// is known at once where a tool of ours wrote the path, else when the turn ends.
// A rewind to an entry takes the intervals of that turn and later ones out of
// play; a redo puts exactly these back. What was evicted lives on as the
// baseline: one interval a path, older than every checkpoint in the list.
//
// # Tracking
//
// With tracking files, an interval is what tools named. A tracked workspace is
// captured besides when a turn begins and when it ends (package workspace,
// tracked.go): what changed in between and no other session claimed is the
// turn's, whoever made it, and its intervals replace those that tools opened.
// What changed between turns, or was another session's, becomes outside
// intervals: they belong to no turn, show as seams between ours, and are undone
// only with scope "all".
//
// # Rewinding
//
// Decide, prepare, write the intent, act, write the outcome (move.go). The
// intent and the outcome are two records of the log; a log that ends between
// them is completed when it is next opened for writing, before anything else
// happens (open.go). A fork that goes with a rewind is written first, under a
// name nobody finds, and gets its name when the files are back.
//
// # On disk (format 1)
//
// sessions/<workspaceKey>/<createdAt>_<sessionId>.jsonl below the agent
// directory: JSON Lines, each ending in a checksum (package journal). The
// first is
//
//	{"type":"session","version":1,"id":…,"cwd":…,"createdAt":ms,"app":…,"tracking":…,"crc":…}
//
// and the others are, by type (record.go has every field):
//
//	entry    an entry below its parent; the leaf moves to it; role user opens a turn
//	before   intervals of a turn: paths and what they were
//	after    after states of intervals, fixed or made unknown again
//	known    after states that were not known when their turn ended
//	end      the end of a turn with its after states; open: the session was closed inside it
//	reopen   the turn goes on after a close
//	seen     the capture that a turn of a tracked session begins with, or why there is none
//	         and the rules that it followed, where they are others than before
//	outside  intervals that are no turn's of this session
//	rewind   the intent of a rewind or redo: steps, intervals, conversation
//	rewound  its outcome
//	evict    turns up to an entry are folded into the baseline
//	forked   the end of what a fork copied from its source
//	agent    what a wrapped agent and its client call the session (optional; agent.go)
//	message  what a wrapped agent calls a message of the user
//	setting  a mode or an option that the client of a wrapped agent has set
//	label title dirs state
//
// "version" is judged before anything else, and no other key of the line has it in its name.
// A newer log is refused by name and left untouched; a record that cannot be
// read, or does not fit, is damage: the session is still shown, and a rewind
// that may need the record is refused.
//
// Beside a log lie its .lock (one writer, in any process), logs of forks that
// are not published yet (.staged), and "summaries", a cache of what a listing
// shows, bound to size and mtime of each log (summaries.go). A log that is idle
// for long is compressed as a whole, to .jsonl.zst (pack.go).
//
// A log is read in two ways: by its writer, and by whoever has not its lock,
// as it is (stored.go): to list it, to show it (view.go), to check it (check.go),
// and to learn what it needs (roots.go) before contents are collected (gc.go).
//
// What the driver keeps at an entry is stored against what it kept before
// (driver.go).
//
// # Concurrency
//
// What changes a session is done one call at a time (Session.begin); the state
// is read under a lock that is never held across I/O, so that a reader sees the
// state before while a rewind waits for a hook or works.
//
// # Measured
//
// Recording 200 files of 4 KiB takes 15 to 25 ms on 2 cores and ext4, in one
// request or in 200 that wait together, and as long in the hundredth turn as in
// the first. A third of the processor's time is zstd, a third reading the
// files, a tenth finding what their paths lead to, the rest JSON and the wire.
// Contents are captured on all cores; one sync of the contents and one of the log
// serve all that waits. Opening a log reads 300 to 500 MB/s: of what was said
// nothing is decoded but what the user said (see skim), and states of files
// have a decoder of their own (checkpoints.State).
package session
