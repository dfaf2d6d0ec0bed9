// Package workspace sees every change in a tracked tree, whoever made it. It
// hides how: the walk, the stat cache, the ignore rules, the budget, and the
// journal of captures that sessions and processes share.
//
// # Words
//
// A capture is one look at a root: what has changed there since the last one,
// by whomever, is stored and written down under the next number. A Mark is a
// capture of each root of a session, which is what a turn notes. Two marks of
// a session tell what changed between them (Changes), each alone what any path
// was (States). A Claim is a session's word that a change was its own.
//
// # Promises
//
//   - When Capture returns nil, its mark outlives a power cut: contents first,
//     then the journal. When it returns an error there is no capture, and the
//     next one sees all that it would have seen.
//   - Nothing is ever written in a workspace, no link below a root is followed,
//     and nothing is opened but directories and regular files, without waiting:
//     a FIFO that takes a file's place meanwhile is opened without blocking and
//     closed. Nothing named .git, in any case, is entered; what is read of a
//     repository is whether it is one, and its info/exclude. The agent
//     directory is skipped wherever it lies.
//   - Absent is said only of what a capture that covered the path did not find.
//     A directory that cannot be opened or listed leaves what is known below it
//     as it was, and the capture says that it was blind there: at that mark the
//     paths below are uncovered, not what they were before. A root that cannot
//     be seen makes no capture at all.
//   - A mark is good until its session releases it, across crashes and
//     whatever other sessions and processes capture. One that is not there any
//     more is ErrGone, never a wrong answer.
//
// # A capture
//
// A walk lists every directory that the rules cover and compares each name's
// stat (kind, mode, size, mtime, ctime, inode) with the one in the table. Where
// they differ the file is read, its content goes to the blob store, and the
// path gets a record. Directories and links are states as well, an empty
// directory too. The walk comes first as a whole and the reading second, so
// that a tree over its budget is known before a byte is read.
//
// Nobody can set a ctime, so an edit of the same size with the old mtime put
// back is seen, and so is a file that was renamed into another's place. Clocks
// tick: a file whose ctime is within a tick of the walk's beginning (50 ms; 2.5
// s where the file system keeps whole seconds) is read again by the next one,
// and is believed once a change after it must show. Not seen is what does not
// show in a stat at all: a write through a mapping that is not yet on its way
// to the disk, and one on a server whose clock is behind ours by more than that.
//
// A file over MaxKept is uncovered, with its stat, and has changed when that
// has: its stamp tells whether it still is what a turn left, so that nothing of
// it is read. Only where a change right after the walk need not show in that,
// and its state before can be had back, is it read, for its digest alone.
//
// # What is covered
//
// Rules are what .gitignore files and info/exclude say, as git has it (package
// ignore), from the top of the repository that the root lies in, or from the
// root without one; a repository inside begins afresh. No configuration, no
// global excludes, no index. The root itself is never excluded: somebody chose
// it. Lines of the settings come before: include wins, and then exclude; a file
// .env or .env.anything is covered in every directory that is walked. An
// include line that is only a name counts in directories that are walked; one
// with a slash opens the excluded directories on its way.
//
// Where a name is skipped only for being a directory, or for being none, that
// it is there is known (its state is uncovered, as excluded), and nothing of
// what is below it. So what a turn puts in its place is not taken for something
// that was not there before; what takes a covered thing's place, and is skipped
// for its kind, is looked at once, so that the covered thing is seen to go.
//
// The rules that a capture has found belong to it. A turn ends under the rules
// of its start: so a capture also covers what the rules of every mark that its
// session still holds cover, and Changes tells only what those of the first
// mark did, or what it was made to look at (CaptureOptions.Always). What they
// skipped is uncovered as excluded, unless a directory above was seen absent.
//
// The budget counts every name that is covered and the bytes of every file that
// is kept. Over it, a root that was never captured is not, which is known as soon
// as the count is; one that was is compared on, new files fit in while there is
// room, and that capture knows nothing of what it does not know ("over").
//
// # Sessions, processes
//
// Each root has one journal, whatever other roots a session has, and one lock.
// Whoever captures or claims holds the lock: captures are one after the other,
// each sees a claimed change whole or not at all, and the order of all of them
// is exact. The lock is the operating system's, so a killed process blocks
// nobody. The next to take it reads on where it had stopped, and so has the
// stat cache of the last. Claims, and the beginnings and ends of turns, are
// told to the journals of trees that lie in this one or around it as well; and
// by sessions that track nothing (Claimant), to whatever journals there are.
// What one in memory tells stands beside the journal, in this process alone: of
// trees that it has open, or had once.
//
// Changes lays the records and claims of a path end to end. Where a claim does
// not begin with what the path was, or a capture does not see what the last
// claim left, there is a link that nobody owns; it is shared with the sessions
// that had a turn open between the captures on both sides of it. A claimed path
// of which a capture has no record is again what it was, if the capture looked;
// else its claims wait for one that does.
//
// # On disk (format 1)
//
//	workspaces/<key of the root>/
//	  lock
//	  captures-<n>.jsonl   the highest n is in force, and whole
//	  damaged              one that could not be read, set aside
//
// A journal is lines as of package journal, in this order:
//
//	tree     version, id, root; base: the capture that the base records stand for;
//	         what is held and which turns are open there
//	base     records: the table as it was then
//	rules    what a capture found; written once
//	part …   records of the capture that follows, 256 KiB a line
//	capture  number, session, rules, and what its records cannot tell: whether a
//	         turn begins or ends, where it was blind, whether it was over
//	claim    a session, and paths with what it brought them from and to
//	turn     a turn begins or ends of a session in an overlapping tree, or one that tracks nothing
//	release  a session needs nothing before a number
//
// A capture counts when its own line is there; parts without it are passed
// over. Records are bytes (record.go), base64 in their line: 110 a path. The
// stat cache is nothing but the fold of the journal, so it cannot be out of
// step with it; a line that is damaged, and with it all that was promised, is
// said by the next capture (Lost), which begins anew. Capture numbers mean
// something in one journal only, which its id tells.
//
// When a journal has become four times as long as it was (and a megabyte), the
// process that captures writes the next one: the base at the oldest capture
// that anybody holds, and of the captures since only those that are held, each
// with all that changed since the one before. So it grows with what changed
// and what is held, not with time.
//
// A tree goes as a whole when nobody needs it (Prune), under its lock, the lock
// last: whoever waits for that finds its name gone and begins the tree anew.
//
// # Measured
//
// 50,000 files, 304 MB, 4,608 directories; 2 cores that others used as well,
// ext4, warm, git 2.39.5, side by side (go test -bench Capture). What compares
// on such a machine is the processor's time:
//
//	                                wall             processor
//	nothing changed                 0.10 - 0.18 s    0.16 - 0.17 s
//	git status --porcelain          0.12 - 0.52 s    0.16 - 0.19 s
//	nothing changed, a new process  0.19 - 0.31 s    0.23 s
//	first capture                   3.1 s            1.9 s
//	git add -A, empty repository    33 s             15 s
//
// Of the first, nine tenths are in the kernel: one getdents a directory, one
// lstat a name. 100,000 known files: 37 MB resident after a collection, 74
// before, 140 at the peak of the first capture; their journal has 11 MB.
package workspace
