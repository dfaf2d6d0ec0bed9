package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// summaries caches what a listing shows of each log, bound to the log's name,
// size and mtime: in memory, and beside the logs in one file a directory.
//
// The file is lines that are checked like a log's. The last line of a log
// counts; what is new is appended, and the file is written anew when more than
// half of it is of no use. So a listing costs a look at each log, and reading
// one only where its summary is missing, stale, damaged or another log's.
// Nothing is lost with the file, so nothing about it is ever an error.
//
//	{"type":"summary","version":3,"name":…,"size":…,"mtime":…,"at":…,"info":{…},"crc":…}
//
// A listing is sorted by what stands before the info, which alone is decoded,
// by hand: of 10,000 sessions a page shows 100.
type summaries struct {
	mu   sync.Mutex // not held while reading
	dirs map[string]known
}

// known is the summaries of a directory's logs, by name. It is never changed,
// only replaced.
type known map[string]summary

type summary struct {
	dir   string // of the log; set in a listing
	name  string
	size  int64
	mtime int64  // ns
	at    int64  // Info.UpdatedAt
	info  []byte // an Info, in JSON
}

const summariesName = "summaries"

// summaryStart begins each line. With what a summary tells of a log the version
// changes: a line of another one is not read, and the file is written anew.
const summaryStart = `{"type":"summary","version":3,"name":"`

// of returns the summaries of the logs in dir but for those of the sessions
// that skip names, reading the logs whose summary is stale.
func (c *summaries) of(ctx context.Context, root disk.Root, dir string, skip map[string]bool) ([]summary, error) {
	c.mu.Lock()
	old := c.dirs[dir]
	c.mu.Unlock()
	whole := true
	if old == nil {
		old, whole = readSummaries(root, dir)
	}
	now, stale, err := refreshSummaries(ctx, root, dir, old, skip)
	if err != nil {
		return nil, err
	}
	all := slices.Collect(maps.Values(now))
	for name, s := range old {
		if skip[place{dir, name}.id()] {
			now[name] = s // until the session is closed
		}
	}
	c.mu.Lock()
	if c.dirs == nil {
		c.dirs = map[string]known{}
	}
	c.dirs[dir] = now
	c.mu.Unlock()
	if !whole || len(stale) > 0 {
		keepSummaries(root, dir, now, stale, whole)
	}
	return all, nil
}

// refreshSummaries looks at every log in dir and returns the summaries as they
// are now, and which of them are new.
func refreshSummaries(ctx context.Context, root disk.Root, dir string, old known, skip map[string]bool) (now known, stale []summary, err error) {
	files, err := disk.ReadDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return known{}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	infos := lookAt(dir, files, skip)
	for name := range old {
		if _, ok := infos[name]; !ok && !skip[place{dir, name}.id()] {
			infos[name] = nil // gone, or missed on its way from form to form
		}
	}
	now = make(known, len(infos))
	var unread []place
	for name, info := range infos {
		p := place{dir, name}
		if info == nil {
			if info, _, err = p.stat(root); err != nil {
				continue // deleted
			}
		}
		was, ok := old[name]
		if ok && was.size == info.Size() && was.mtime == info.ModTime().UnixNano() {
			now[name] = was
		} else {
			unread = append(unread, p)
		}
	}
	stale, err = readInfos(ctx, root, unread)
	for _, s := range stale {
		now[s.name] = s
	}
	return now, stale, err
}

// lookAt is what each log among files is, by name: nil where it is there in
// both forms, or gone.
func lookAt(dir string, files []fs.DirEntry, skip map[string]bool) map[string]fs.FileInfo {
	infos := make(map[string]fs.FileInfo, len(files))
	for _, f := range files {
		p, _, ok := placeOf(dir, f.Name())
		if !ok || !f.Type().IsRegular() || skip[p.id()] {
			continue
		}
		info, err := f.Info() // which reading the directory has already asked for
		if _, twice := infos[p.name]; twice || err != nil {
			info = nil
		}
		infos[p.name] = info
	}
	return infos
}

// readInfos reads logs for their summaries, some at a time.
func readInfos(ctx context.Context, root disk.Root, places []place) ([]summary, error) {
	read := make([]summary, len(places))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range places {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			// The look comes first: a log that grows meanwhile is stale.
			st, _, err := p.stat(root)
			if err != nil {
				return nil // deleted meanwhile
			}
			info, sure := readInfo(root, p)
			info.Size = st.Size()
			b, err := encodeJSON(info)
			if err != nil {
				return err
			}
			read[i] = summary{name: p.name, size: st.Size(), mtime: st.ModTime().UnixNano(), at: info.UpdatedAt, info: b}
			if !sure {
				read[i].size = -1 // fits no log
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	found := read[:0]
	for _, s := range read {
		if s.name != "" {
			found = append(found, s)
		}
	}
	return found, nil
}

// decode is the info of s.
func (s summary) decode() (Info, error) {
	var i Info
	err := json.Unmarshal(s.info, &i)
	return i, err
}

// compare puts the newest activity first, as newestFirst does.
func (s summary) compare(o summary) int {
	if c := cmp.Compare(o.at, s.at); c != 0 {
		return c
	}
	return cmp.Compare(place{name: o.name}.id(), place{name: s.name}.id())
}

// readSummaries reads the cache of dir, and reports whether it is there and
// all of it is good.
func readSummaries(root disk.Root, dir string) (all known, whole bool) {
	all = known{}
	b, err := disk.ReadFile(root, path.Join(dir, summariesName))
	if err != nil {
		return all, false
	}
	whole = true
	tail, err := journal.Scan(bytes.NewReader(b), maxLine, func(l journal.Line) error {
		s, ok := parseSummary(l.Object)
		if whole = whole && ok; ok {
			all[s.name] = s
		}
		return nil
	})
	return all, whole && err == nil && tail.Torn == 0 && !tail.Unclosed
}

// keepSummaries adds what is new to the cache of dir, or writes it anew where
// it is not whole or more than half of it is of no use.
func keepSummaries(root disk.Root, dir string, all known, stale []summary, whole bool) {
	name := path.Join(dir, summariesName)
	if whole {
		// Another process may have added to it.
		b, err := disk.ReadFile(root, name)
		if err == nil && bytes.Count(b, []byte("\n"))+len(stale) <= 2*len(all)+100 && addSummaries(root, name, stale) {
			return
		}
	}
	var b []byte
	for _, s := range all {
		b = s.appendTo(b)
	}
	disk.Publish(root, name, b, 0o600)
}

// addSummaries reports whether stale could be appended to the cache file name.
func addSummaries(root disk.Root, name string, stale []summary) bool {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var b []byte
	for _, s := range stale {
		b = s.appendTo(b)
	}
	_, err = f.Write(b)
	return err == nil
}

// parseSummary reads what appendTo wrote.
func parseSummary(object []byte) (summary, bool) {
	var s summary
	rest, ok := bytes.CutPrefix(object, []byte(summaryStart))
	name, rest, ok2 := bytes.Cut(rest, []byte(`"`))
	s.name = string(name)
	ok = ok && ok2
	for _, f := range []struct {
		key string
		to  *int64
	}{{`,"size":`, &s.size}, {`,"mtime":`, &s.mtime}, {`,"at":`, &s.at}} {
		var digits []byte
		rest, ok2 = bytes.CutPrefix(rest, []byte(f.key))
		i := bytes.IndexByte(rest, ',')
		if !ok || !ok2 || i < 0 {
			return s, false
		}
		digits, rest = rest[:i], rest[i:]
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return s, false
		}
		*f.to = n
	}
	rest, ok = bytes.CutPrefix(rest, []byte(`,"info":`))
	if !ok || len(rest) < 3 || rest[len(rest)-1] != '}' {
		return s, false
	}
	s.info = bytes.Clone(rest[:len(rest)-1])
	return s, true
}

// appendTo appends the line of s to b.
func (s summary) appendTo(b []byte) []byte {
	if strings.ContainsAny(s.name, "\"\\\n") {
		return b // no log of ours has such a name; this one is read each time
	}
	o := append([]byte(summaryStart), s.name...)
	o = strconv.AppendInt(append(o, `","size":`...), s.size, 10)
	o = strconv.AppendInt(append(o, `,"mtime":`...), s.mtime, 10)
	o = strconv.AppendInt(append(o, `,"at":`...), s.at, 10)
	o = append(append(append(o, `,"info":`...), s.info...), '}')
	line, err := journal.Encode(b, o)
	if err != nil {
		return b
	}
	return line
}
