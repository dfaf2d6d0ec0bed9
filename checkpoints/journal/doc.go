// Package journal is the append-only log of JSON Lines that a session is, and
// the lock that makes one process its writer.
//
// # Promise
//
// When Append returns nil, its lines outlive a power cut. When it returns an
// error, every earlier line is still whole and none of the new ones is
// promised: the log is cut back, so that a full disk can be freed and the log
// used on. A log that cannot be cut back, or whose sync failed, takes nothing
// more until it is opened again (ErrBroken): after a failed sync, one that
// succeeds proves nothing about the earlier bytes.
//
// What OpenWriter has passed on is as durable as what Append acknowledged: a
// process may have been killed between its write and its sync, and nobody may
// act on a line that a power cut could still take away. So opening syncs the
// file and its name once.
//
// # Format (1)
//
// Each line is a JSON object whose last member is "crc": CRC-32C (Castagnoli)
// of the bytes before `,"crc"`, in 8 lower-case hex digits.
//
//	{"type":"session","version":1 ,"crc":" 5807e982 "} \n
//	└────────── covered ─────────┘└ 8 ───┘└─ 8 ──┘└2─┘ 1      (bytes; spaces are ours)
//
// The object is what is left when the member is taken out. There is exactly
// one line for an object and one object for a line. An object begins with
// `{"`: an empty one has nothing to tell and would need a form of its own, so
// it is refused, as is a newline anywhere in it. Whether the rest is JSON is
// the caller's to know; the sum says that it is what the caller gave.
//
// # How a log ends
//
// Only what nobody was told may be dropped in silence, and the log alone must
// tell it apart from damage. A line is written with its newline in one write,
// newline last:
//
//	last bytes                              | is        | readers    | OpenWriter
//	newline, and the sum is right           | whole     | deliver    | keeps
//	newline, and the sum is wrong           | damage    | report     | keeps
//	no newline, and the sum is right        | unclosed  | deliver    | adds the newline
//	no newline, and the sum is wrong        | torn      | ignore     | cuts it off
//
// A line before the last that does not verify is damage too: it is reported in
// its place, with what is known of it, and the lines after it are delivered.
// So is a line longer than the reader's limit; it is passed over without being
// held in memory: let the limit be above all that is appended.
//
// A disk that wrote some pages of the last append and not others before the
// power went leaves zeros, and lines behind them. That is told as damage, too:
// nobody was told that these lines are kept, but the log alone cannot know. A
// line that zeros stand before, having taken the newline of another, is
// delivered after they are reported.
//
// # Making a log
//
// Create writes the first lines under name plus ".tmp" and renames, so that a
// log is never seen without them. A power cut in Create can leave a ".tmp"
// that nobody reads.
//
// # Locks
//
// The lock on a log is a file beside it, locked by the operating system, so
// that one left by a killed process is free. The file is never unlinked by
// Unlock: another process may have it open already, and would lock a file that
// no name leads to while a third locks a new one. Remove unlinks it while the
// lock is held, which is safe because TryLock, once it has the lock, checks
// that the name still leads to the file it locked.
//
// # Measured
//
// On 2 cores and ext4, objects of 300 bytes: Append 0.2 ms, of which the sync
// is nearly all; 1,000 objects in one Append 1.1 ms. Scan 3.4 GB/s.
package journal
