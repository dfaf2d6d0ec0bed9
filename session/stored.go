package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// place is where a log lies below the agent directory.
type place struct {
	dir  string // sessions/<workspaceKey>
	name string // <createdAt>_<sessionId>
}

const (
	logSuffix    = ".jsonl"
	packedSuffix = ".jsonl.zst" // an idle one, see pack.go
	lockSuffix   = ".lock"
	stagedSuffix = ".staged"
)

func (p place) log() string    { return path.Join(p.dir, p.name+logSuffix) }
func (p place) packed() string { return path.Join(p.dir, p.name+packedSuffix) }
func (p place) lock() string   { return path.Join(p.dir, p.name+lockSuffix) }

// staged is the log of a child that parent has not published yet.
func (p place) staged(parent string) string {
	return path.Join(p.dir, p.name+"."+parent+stagedSuffix)
}

// id is the session's, from its log's name.
func (p place) id() string {
	_, id, _ := strings.Cut(p.name, "_")
	return id
}

// placeOf is the place of the log file base in dir.
func placeOf(dir, base string) (p place, packed, ok bool) {
	name, packed := strings.CutSuffix(base, packedSuffix)
	if !packed {
		if name, ok = strings.CutSuffix(base, logSuffix); !ok {
			return place{}, false, false
		}
	}
	return place{dir, name}, packed, strings.Contains(name, "_")
}

// workspaceDirs lists the directories that hold logs.
func workspaceDirs(root disk.Root) ([]string, error) {
	keys, err := disk.ReadDir(root, "sessions")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, k := range keys {
		if k.IsDir() {
			dirs = append(dirs, path.Join("sessions", k.Name()))
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// logsIn lists the logs in dir, each once. A log that changes its form at that
// moment can be missed.
func logsIn(root disk.Root, dir string) ([]place, error) {
	files, err := disk.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	var places []place
	seen := map[string]bool{}
	for _, f := range files {
		if p, _, ok := placeOf(dir, f.Name()); ok && f.Type().IsRegular() && !seen[p.name] {
			seen[p.name] = true
			places = append(places, p)
		}
	}
	return places, nil
}

// logPlaces lists every log of the agent directory.
func logPlaces(root disk.Root) ([]place, error) {
	dirs, err := workspaceDirs(root)
	if err != nil {
		return nil, err
	}
	var all []place
	for _, dir := range dirs {
		places, err := logsIn(root, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, places...)
	}
	return all, nil
}

// stat looks at a log in whichever form it is.
func (p place) stat(root disk.Root) (info fs.FileInfo, packed bool, err error) {
	// It may change its form between two looks, but not for ever.
	for range 2 {
		if info, err = root.Lstat(p.log()); !errors.Is(err, fs.ErrNotExist) {
			return info, false, err
		}
		if info, err = root.Lstat(p.packed()); !errors.Is(err, fs.ErrNotExist) {
			return info, true, err
		}
	}
	return nil, false, err
}

// logReader reads a log as it would be were it not packed.
type logReader struct {
	*bufio.Reader
	file   disk.File
	zstd   *zstd.Decoder // of a packed one
	packed bool
}

// headSize is how much of a log is looked at to know its version: a first line
// is never longer.
const headSize = 64 << 10

// open opens a log for reading in whichever form it is. Of both the plain one
// is the truth (see pack.go).
func (p place) open(root disk.Root) (*logReader, error) {
	var err error
	for range 2 {
		var f disk.File
		if f, err = root.OpenFile(p.log(), os.O_RDONLY, 0); err == nil {
			return newLogReader(f), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if f, err = root.OpenFile(p.packed(), os.O_RDONLY, 0); err == nil {
			return unpack(f)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, err
}

// newLogReader reads a plain log; f is closed with it.
func newLogReader(f disk.File) *logReader {
	return &logReader{Reader: bufio.NewReaderSize(f, headSize), file: f}
}

func (r *logReader) Close() error {
	if r.zstd != nil {
		r.zstd.Close()
	}
	return r.file.Close()
}

// stored is a log that was read without its lock, as it is.
type stored struct {
	place  place
	state  *state
	packed bool
	tail   journal.Tail
}

// read folds a log in. Every line is also passed to each, which may be nil,
// after it was folded. A log that is newer, does not begin as one, or is none
// (noSession) is an *Error; damage behind that is noted in the state.
func (p place) read(root disk.Root, each func(journal.Line)) (*stored, error) {
	f, err := p.open(root)
	if err != nil {
		return nil, storageError("the log of session "+p.id()+" cannot be opened", err)
	}
	defer f.Close()
	s, err := readFrom(f, p, each)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == LogDamaged {
		if none := judgeKind(root, p); none != nil {
			return nil, none
		}
	}
	return s, err
}

func readFrom(f *logReader, p place, each func(journal.Line)) (*stored, error) {
	if err := judgeVersion(f.Reader, p.id()); err != nil {
		return nil, err
	}
	s := &stored{place: p, state: newState(), packed: f.packed}
	var header error
	tail, err := journal.Scan(f, maxLine, func(l journal.Line) error {
		if l.Number == 1 {
			if _, header = judgeHeader(p.id(), l); header != nil {
				return header
			}
		}
		if err := s.state.applyLine(l); err != nil {
			return err
		}
		if each != nil {
			each(l)
		}
		return nil
	})
	if header != nil {
		return nil, header
	}
	if err != nil && f.packed {
		// What could be unpacked is good, each line has its sum.
		s.state.noteDamage(0, fmt.Errorf("the compressed log is damaged: %w", err))
	} else if err != nil {
		return nil, storageError("the log of session "+p.id()+" cannot be read", err)
	}
	if s.state.head.ID == "" {
		_, err := judgeHeader(p.id(), journal.Line{Err: fmt.Errorf("%w: it has no whole line", journal.ErrDamaged)})
		return nil, err
	}
	s.tail = tail
	return s, nil
}

// judgeVersion refuses a log of a newer version before anything else is asked
// of it, its sum too: a newer one may have other lines, and sums of another
// kind. A bit that flipped there is told as one: neither is touched.
func judgeVersion(r *bufio.Reader, id string) error {
	head, _ := r.Peek(headSize)
	line, _, _ := bytes.Cut(head, []byte("\n"))
	named := versionName.FindSubmatch(line) // whatever else the line holds
	if named == nil {
		return nil
	}
	if n, err := strconv.ParseUint(string(named[1]), 10, 64); err == nil && n <= formatVersion {
		return nil
	}
	return refuse(NewerVersion, "session %s was written by a newer oinod (log version %s; this one knows %d); use that one, nothing was touched", id, named[1], formatVersion)
}

// What a file beside the logs is that looks like one by its name alone.
var (
	// errUnfinished is a log whose first line was never whole: of such a session
	// nobody was told, and it names no content.
	errUnfinished = errors.New("its first line was never whole")
	// errNotOurs is a file that oinod has not written.
	errNotOurs = errors.New("it is no log of oinod's")
)

// noSession reports that err says of a log that it is none, and nobody's.
func noSession(err error) bool {
	return errors.Is(err, errUnfinished) || errors.Is(err, errNotOurs)
}

// headStart is what the first line of a log begins with; headSum is more than
// the sum takes that each of its lines ends with.
const (
	headStart = `{"type":"session",`
	headSum   = 64
)

// judgeKind tells a log that is damaged from what is none: nothing of a log of
// ours can be in it, or nothing was ever finished. In doubt it is damaged.
func judgeKind(root disk.Root, p place) error {
	if _, err := root.Lstat(p.packed()); err == nil {
		return nil // there was a whole log once
	}
	f, err := root.OpenFile(p.log(), os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, headSize)
	no := func(why error) error {
		return &Error{Kind: NotFound, Msg: "there is no session " + strconv.Quote(p.id()) + ", only a file " + p.log(), Err: why}
	}
	head, err := r.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	whole := bytes.IndexByte(head, '\n') >= 0 || err == nil
	switch begins := head[:min(len(head), len(headStart))]; {
	case bytes.IndexByte(head, 0) >= 0:
		return nil // a disk has lost what was there
	case !whole && strings.HasPrefix(headStart, string(begins)):
		return no(errUnfinished)
	case string(begins) == headStart:
		return nil
	}
	var end []byte // of the line under way
	for {
		line, err := r.ReadSlice('\n')
		end = append(end[max(0, len(end)-headSum):], line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case journal.HasSum(bytes.TrimSuffix(end, []byte("\n"))):
			return nil
		case errors.Is(err, io.EOF):
			return no(errNotOurs)
		case err != nil:
			return nil
		}
		end = end[:0]
	}
}

// versionName is where a first line says its version, of any size: no other key
// of one has version in its name.
var versionName = regexp.MustCompile(`"version"\s*:\s*(\d+)`)

// readHeader judges a log by its first line, before anything of it is changed.
func readHeader(root disk.Root, p place) (*headerRecord, error) {
	f, err := p.open(root)
	if err != nil {
		return nil, storageError("the log of session "+p.id()+" cannot be opened", err)
	}
	defer f.Close()
	if err := judgeVersion(f.Reader, p.id()); err != nil {
		return nil, err
	}
	errFirst := errors.New("only the first line is wanted")
	first := journal.Line{Err: fmt.Errorf("%w: it has no whole line", journal.ErrDamaged)}
	if _, err := journal.Scan(f, maxLine, func(l journal.Line) error {
		first = l
		first.Object = slices.Clone(l.Object)
		return errFirst
	}); err != nil && !errors.Is(err, errFirst) {
		if !f.packed {
			return nil, storageError("the log of session "+p.id()+" cannot be read", err)
		}
		first.Err = err
	}
	h, err := judgeHeader(p.id(), first)
	if err != nil {
		if none := judgeKind(root, p); none != nil {
			return nil, none
		}
	}
	return h, err
}

// judgeHeader returns what the first line says, if it is one of ours.
func judgeHeader(id string, first journal.Line) (*headerRecord, error) {
	damaged := func(err error) error {
		return &Error{Kind: LogDamaged, Msg: "the first line of the log of session " + id + " is damaged; nothing of it was touched", Err: err}
	}
	if first.Err != nil {
		return nil, damaged(first.Err)
	}
	rec, err := decodeRecord(first.Object)
	if err != nil {
		return nil, damaged(err)
	}
	h, ok := rec.(*headerRecord)
	if !ok || h.Version < 1 || h.ID != id {
		return nil, damaged(errors.New("it does not name the session"))
	}
	return h, nil
}
