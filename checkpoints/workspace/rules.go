package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/workspace/ignore"
)

// ignoreName is the file whose lines exclude.
const ignoreName = ".gitignore"

// source is where a directory adds to the rules. Directories are named from
// the repository's top (from the root, without one), with a slash behind; ""
// is the outermost.
type source struct {
	dir     string
	top     bool   // a repository begins here: nothing above counts
	exclude []byte // its info/exclude, of a top
	lines   []byte // its .gitignore
}

// rules is everything that decided what one capture covered. It is never
// changed; the same contents have the same id.
type rules struct {
	id      string
	prefix  string // the root's place in its repository, with a slash behind, or ""
	include []string
	exclude []string
	sources []source // by directory

	includes *ignore.Lines
	excludes *ignore.Lines
	added    map[string]*added
}

// source is what the rules have of a directory, or nil.
func (r *rules) source(dir string) *source {
	if r == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(r.sources, dir, func(s source, d string) int { return strings.Compare(s.dir, d) }); ok {
		return &r.sources[i]
	}
	return nil
}

// added is a source, parsed.
type added struct {
	top            bool
	lines, exclude *ignore.Lines
}

func (s source) parse() *added {
	return &added{top: s.top, lines: ignore.Parse(s.lines), exclude: ignore.Parse(s.exclude)}
}

func (s source) equal(o source) bool {
	return s.dir == o.dir && s.top == o.top && bytes.Equal(s.exclude, o.exclude) && bytes.Equal(s.lines, o.lines)
}

// rulesJSON is rules in the journal.
type rulesJSON struct {
	Type    string       `json:"type"`
	ID      string       `json:"id"`
	Prefix  string       `json:"prefix,omitempty"`
	Include []string     `json:"include,omitempty"`
	Exclude []string     `json:"exclude,omitempty"`
	Sources []sourceJSON `json:"sources,omitempty"`
}

type sourceJSON struct {
	Dir     string `json:"dir"`
	Top     bool   `json:"top,omitempty"`
	Exclude []byte `json:"exclude,omitempty"`
	Lines   []byte `json:"lines,omitempty"`
}

func newRules(prefix string, include, exclude []string, sources []source) *rules {
	r := &rules{
		prefix: prefix, include: include, exclude: exclude, added: map[string]*added{},
		includes: ignore.Parse([]byte(strings.Join(include, "\n"))), excludes: ignore.Parse([]byte(strings.Join(exclude, "\n"))),
	}
	slices.SortFunc(sources, func(a, b source) int { return strings.Compare(a.dir, b.dir) })
	r.sources = sources
	for _, s := range sources {
		r.added[s.dir] = s.parse()
	}
	line, _ := json.Marshal(r.json())
	sum := sha256.Sum256(line)
	r.id = hex.EncodeToString(sum[:8])
	return r
}

func (r *rules) json() rulesJSON {
	j := rulesJSON{Type: "rules", ID: r.id, Prefix: r.prefix, Include: r.include, Exclude: r.exclude}
	for _, s := range r.sources {
		j.Sources = append(j.Sources, sourceJSON{s.dir, s.top, s.exclude, s.lines})
	}
	return j
}

func rulesOf(j rulesJSON) *rules {
	var sources []source
	for _, s := range j.Sources {
		sources = append(sources, source{s.Dir, s.Top, s.Exclude, s.Lines})
	}
	r := newRules(j.Prefix, j.Include, j.Exclude, sources)
	r.id = j.ID
	return r
}

// level is one directory whose lines count for what lies below it.
type level struct {
	up  *level // the next one outwards; nil at a repository's top
	dir string
	*added
}

// verdict asks the lines from the innermost directory outwards, and
// info/exclude last. full is named as sources are.
func (l *level) verdict(full string, isDir bool) ignore.Verdict {
	for ; l != nil; l = l.up {
		of := full[len(l.dir):]
		if v := l.lines.Match(of, isDir); v != ignore.None {
			return v
		}
		if l.top {
			return l.exclude.Match(of, isDir)
		}
	}
	return ignore.None
}

// view is what rules say of the names in one directory.
type view struct {
	rules    *rules
	level    *level
	excluded bool // the directory itself is: all in it are, but for what is included
	included bool // a line of the settings includes it with all that is in it
}

// atRoot is the view of the root, whatever lies above it. The root itself is
// never excluded: somebody has chosen it.
func (r *rules) atRoot() view {
	v := view{rules: r}
	if r.prefix == "" {
		return v // enter does the rest
	}
	for i := 0; i < len(r.prefix); i++ {
		if i == 0 || r.prefix[i-1] == '/' {
			v = v.enter(r.prefix[:i], r.added[r.prefix[:i]])
		}
	}
	return v
}

// enter adds what the directory itself says.
func (v view) enter(dir string, a *added) view {
	if a == nil || !a.top && a.lines == nil {
		return v
	}
	l := &level{up: v.level, dir: dir, added: a}
	if a.top {
		l.up = nil
	}
	v.level = l
	return v
}

// covers reports whether the name in v's directory is covered. passed is set
// for a directory that is not, but may hold what is included. rel is its path
// from the root.
func (v view) covers(rel, name string, isDir bool) (covered, included, passed bool) {
	r := v.rules
	if v.included || r.includes.Match(rel, isDir) == ignore.Exclude { // which is what a line that matches says
		return true, true, false
	}
	if isDir {
		passed = r.includes.Below(rel)
	}
	if v.excluded || r.excludes.Match(rel, isDir) == ignore.Exclude {
		return false, false, passed
	}
	if !isDir && strings.HasPrefix(name, ".env") {
		return true, false, false
	}
	full := rel
	if r.prefix != "" {
		full = r.prefix + rel
	}
	if v.level.verdict(full, isDir) == ignore.Exclude {
		return false, false, passed
	}
	return true, false, false
}

// below is the view of a directory in v's, given what covers said of it.
func (v view) below(covered, included bool) view {
	v.excluded, v.included = v.excluded || !covered, included
	return v
}

// lookup answers for any path what a walk under the rules would have done, and
// remembers the directories.
type lookup struct {
	rules *rules
	dirs  map[string]view
}

func (r *rules) lookup() *lookup { return &lookup{r, map[string]view{}} }

// view is that of the directory rel, entered.
func (l *lookup) view(rel string) view {
	if v, ok := l.dirs[rel]; ok {
		return v
	}
	var v view
	full := l.rules.prefix
	if rel == "" {
		v = l.rules.atRoot()
	} else {
		dir, name := split(rel)
		v = l.view(dir)
		covered, included, _ := v.covers(rel, name, true)
		v = v.below(covered, included)
		full += rel + "/"
	}
	v = v.enter(full, l.rules.added[full])
	l.dirs[rel] = v
	return v
}

func (l *lookup) covers(rel string, isDir bool) bool {
	dir, name := split(rel)
	covered, _, _ := l.view(dir).covers(rel, name, isDir)
	return covered
}

// split is a path's directory, "" for the root, and its last name.
func split(rel string) (dir, name string) {
	i := strings.LastIndexByte(rel, '/')
	if i < 0 {
		return "", rel
	}
	return rel[:i], rel[i+1:]
}

// join is the name in the directory dir.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
