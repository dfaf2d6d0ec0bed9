// Package blobs keeps file contents by their SHA-256, for all sessions and
// processes of one agent directory.
//
// # Promise
//
// When Sync returns nil, every content that was put before it outlives a power
// cut. Every read verifies the digest: what Get, WriteTo and Check call good is
// the content, and a content that cannot be had is missing, damaged, or there
// and unreadable, which are three answers. A content is kept once, whoever puts
// it how often.
//
// A full disk loses nothing: what was put waits in memory (1 MiB at most; then
// Put fails and has kept nothing), the segment is cut back, and Sync can be
// called again when there is room. After a failed sync, or a write that could
// not be cut back, the store takes nothing more until it is opened again
// (ErrBroken); it can still be read.
//
// Opening touches nothing. A process that stores nothing makes no file; its
// first look costs the directory and some 2 KiB a segment.
//
// # On disk (format 1)
//
//	blobs/
//	  0.lock               lane 0: who has it locked adds to its segments
//	  0-00000001.seg       a sealed segment: it has a successor
//	  0-00000001.idx       what is in it, sorted; a cache
//	  0-00000002.seg       the newest of the lane: the one that is added to
//	  1.lock 1-00000001.seg  another process's, at the same time
//	  5f70…c2.big          a content of more than 4 MiB
//	  lock                 held together by sessions, alone by Collect
//	  generation           changes with each Collect
//
//	segment  = head, then frames
//	head     = "oinoSEG\n" │ version 4 │ sum 4 │ id 16
//	frame    = magic 4 │ encoding 1 │ 0 0 0 │ size 8 │ part 4 │ stored 4 │ digest 32 │ sum 4 │ payload
//	index    = "oinoIDX\n" │ version 4 │ sum 4 │ id 16 │ covered 8 │ count 4 │ filter's length 4
//	           │ 256 × (end 4 │ sum 4) │ filter │ count × (digest 32 │ offset 4 │ stored 4)
//
// Numbers are little-endian, sums CRC-32C. segment.go, frame.go and index.go
// have the details above the code that does it. A payload is the content as it
// is, or as a zstd frame where that is shorter. A segment ends at 64 MiB, a
// frame holds 4 MiB at most: that is what a reader has in memory, whatever a
// header claims. A longer content is a file of its own with as many frames as
// it needs, written aside and renamed.
//
// # Lanes
//
// A process that stores takes the first lane that is free, by a lock that goes
// with the process, and goes on with its newest segment. So there are as many
// lanes as there ever were processes at the same time, and the number of
// segments is that of 64 MiB pieces, though a client may start a process for
// every prompt.
//
// # What may be counted on
//
// Put writes nothing when the content is there and will survive: when its frame
// is whole and synced. In the own segment that is so: we have written it, or
// verified it when we took the segment over, and the next Sync covers it. In
// another's it is so only when two facts say so, both visible in the directory;
// nothing is published besides:
//
//   - A segment that has a successor in its lane is synced whole: its owner
//     makes the next one only after that.
//   - What an index names is synced and whole: it is written only after that,
//     by who has written the frames or verified them.
//
// So of what an index covers, what it names is all that counts. Anything else
// (the end of another process's newest segment, a header that is followed by
// other bytes than it says) is read, but kept once more by whoever puts it. That
// costs space when two processes store the same at the same time, until
// Collect, and nothing else.
//
// # What is there is never written over
//
// A frame that does not verify may be one that a crash has torn, which nobody
// was told of. Or it was acknowledged and is damaged, perhaps only for now: a
// disk, a cable, a file that will come back. They look the same. So nobody but
// its writer, before a Sync has covered it, ever cuts off or changes a byte of
// a segment. Who takes a lane verifies what no index covers. If all of it is
// whole the lane goes on behind it, and otherwise in a new segment.
//
// # What a crash leaves
//
//	found                                   | by          | what is done
//	a torn frame at the end                 | readers     | not seen
//	                                        | next owner  | left; the lane goes on in a new segment
//	a whole header, its payload torn        | readers     | damaged
//	                                        | next owner  | left out of the index; a new segment
//	frames that were written, not synced    | next owner  | verified and synced before they count
//	an empty segment, or one without a head | next owner  | left; the lane goes on with the next number
//	no index, an old one, a torn one        | whoever     | in a sealed segment, what it lacks is verified and
//	                                        |             | it is written anew; in the newest headers are walked
//	files that end in .tmp                  | Collect     | removed
//	old and new copy of a segment           | readers     | either is good
//
// What is verified is what no index covers: 2 MiB after an orderly end, at most
// a segment after a crash.
//
// Damage (a flipped bit) costs the content it is in, while it lasts: behind it a
// walk looks for the next header that verifies. An index is believed only where
// its sums, the id of its segment and its length fit; each bucket is verified
// when it is read; a digest found in vain sends the reader to the frames. A
// content that was found damaged is written again when it is put again, and one
// good copy is enough, wherever it is. Segments of a newer format are left alone
// and named in the error.
//
// # Finding
//
// Of each index, 2 KiB and a filter of 10 bits a content are in memory. A look-up
// asks the filters and reads, of one segment in most cases, one bucket of some
// KiB. What is behind an index is a map, at most one segment's in each lane. On a
// miss the directory is read again, once, with what is new in it, so that a
// content which another process has written is found. If that does not help
// either, the parts of segments in which no frame is known are searched
// (hidden.go): there is a content whose bytes are right again, and the header
// that tells a damaged one from a missing one. Which parts those are takes one
// reading of each index and is remembered; mostly there are none. Put does
// nothing of that.
//
// # Collecting
//
// Collect takes the store's lock alone; a Hold is a share in it, from the first
// look-up to the sync of the log that names the content. Sealed segments and
// those of free lanes of which half or more is dead are copied: the living
// frames, verified, go to the own segment; that is synced; the generation is
// changed; the old ones are unlinked. Whoever holds next sees the generation
// and forgets what it knew, so that nobody "keeps" a content by remembering
// where it was. Who reads without holding reads again when a file is gone.
//
// A segment is not collected while there may be something in it that we do not
// see: bytes in which no frame is known, unless they begin with good headers,
// are zeros, or were torn off at the end; nor while a living content in it does
// not verify, unless that is hidden and there is a good copy.
//
// # Measured
//
// On 2 cores and ext4, contents of 4 KiB like source text: Put of a new one with
// one Sync for 200, 23,000 a second; of one that is there, 200,000 a second;
// Get 60,000 a second. The first look of a new process into 100,000 contents:
// 3 ms. What a process has in memory of 500,000 contents in 12 segments: 1.5 MiB.
//
// Up to 16 KiB a content is compressed without entropy coding: source text to
// a half instead of two fifths, in two thirds of the time to write and half of that
// to read.
package blobs
