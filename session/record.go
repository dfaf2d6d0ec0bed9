package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// formatVersion is the version of the log that this oinod writes.
const formatVersion = 1

// The records of a log. Each is one line; its "type" comes first, so that a
// line can be told without decoding it whole. A field once written keeps its
// meaning for ever; a new one is optional.

// headerRecord is the first line.
type headerRecord struct {
	Type                  string   `json:"type"` // session
	Version               int      `json:"version"`
	ID                    string   `json:"id"`
	Cwd                   string   `json:"cwd"`
	AdditionalDirectories []string `json:"additionalDirectories,omitempty"`
	CreatedAt             int64    `json:"createdAt"`
	App                   string   `json:"app"`
	Tracking              Tracking `json:"tracking"`
	ParentSessionID       string   `json:"parentSessionId,omitempty"`
	Agent                 string   `json:"agent,omitempty"`
	ImportedFrom          string   `json:"importedFrom,omitempty"` // its id in the store it was imported from
}

// entryRecord adds an entry below its parent and moves the leaf to it. One of
// role user opens a turn.
type entryRecord struct {
	Type         string          `json:"type"` // entry
	ID           string          `json:"id"`
	ParentID     string          `json:"parentId,omitempty"`
	Role         Role            `json:"role"`
	CreatedAt    int64           `json:"createdAt"`
	Content      json.RawMessage `json:"content"`
	Display      json.RawMessage `json:"displayContent,omitempty"`
	ToolCallID   string          `json:"toolCallId,omitempty"`
	Status       string          `json:"status,omitempty"`
	Tool         json.RawMessage `json:"tool,omitempty"`
	Summary      string          `json:"summary,omitempty"`
	KeepFrom     string          `json:"keepFrom,omitempty"`
	TokensBefore int64           `json:"tokensBefore,omitempty"`
	TokensAfter  int64           `json:"tokensAfter,omitempty"`
	MessageID    string          `json:"messageId,omitempty"`
	Told         string          `json:"told,omitempty"` // see Entry.Told
}

// messageRecord is what a wrapped agent calls a message of the user, which it
// says only when it has it. Of its own messages the entries have that.
type messageRecord struct {
	Type      string `json:"type"` // message
	Entry     string `json:"entry"`
	MessageID string `json:"messageId"`
}

// beforeRecord opens intervals of a turn: what paths were before it changed them.
type beforeRecord struct {
	Type      string           `json:"type"` // before
	Turn      string           `json:"turn"`
	Intervals []intervalRecord `json:"intervals,omitempty"`
	// Unseen is what the turn is said to change and nobody looks at.
	Unseen []Uncovered `json:"unseen,omitempty"`
	At     int64       `json:"at,omitempty"` // see activity
}

type intervalRecord struct {
	N       int                  `json:"n"` // counts the log's intervals, from 1
	Path    string               `json:"path"`
	Before  checkpoints.State    `json:"before"`
	Parents []checkpoints.Parent `json:"parents,omitempty"`
	Error   string               `json:"error,omitempty"` // why Before is uncovered
	// In the log of a fork: the after state that was copied along.
	After *checkpoints.State `json:"after,omitempty"`
	Seam  bool               `json:"seam,omitempty"` // see interval.seam
	// Linked: for scope "all" that is none; see interval.linked.
	Linked bool `json:"linked,omitempty"`
	// Shared are other sessions whose turn was open too when the path changed.
	Shared []string `json:"shared,omitempty"`
	// Along: a directory that came or went only with something in it.
	Along bool `json:"along,omitempty"`
	// SessionID, of an outside change, is the session that said it was its own.
	SessionID string `json:"sessionId,omitempty"`
}

// seenRecord is the capture that a turn of a tracked session begins with.
type seenRecord struct {
	Type string         `json:"type"` // seen
	Turn string         `json:"turn"`
	Mark workspace.Mark `json:"mark,omitempty"`
	// Blind says why the turn is not covered, and Error what went wrong: then
	// there is no mark, and only what tools touch is known.
	Blind checkpoints.Reason `json:"blind,omitempty"`
	Root  string             `json:"root,omitempty"`
	Error string             `json:"error,omitempty"`
	// Unseen is what the capture could not see: nobody can tell what the turn
	// has changed there.
	Unseen []Uncovered `json:"unseen,omitempty"`
	// Dark: nobody can tell either what it would have seen, for nothing was seen
	// before that could be compared with what is seen next.
	Dark bool `json:"dark,omitempty"`
	// Rules are what the capture covered, where that is not what the last one did.
	Rules []*workspace.Rules `json:"rules,omitempty"`
}

// outsideRecord keeps what changed and was no turn's of this session. It comes
// before the user entry of the turn whose begin saw it; with a turn it
// happened inside that one.
type outsideRecord struct {
	Type      string           `json:"type"` // outside
	Turn      string           `json:"turn,omitempty"`
	Mark      workspace.Mark   `json:"mark,omitempty"`
	Intervals []intervalRecord `json:"intervals,omitempty"`
}

// afterRecord fixes after states (or makes them unknown again, with a nil state).
type afterRecord struct {
	Type   string       `json:"type"` // after
	Turn   string       `json:"turn"`
	Afters []afterState `json:"afters"`
	At     int64        `json:"at,omitempty"`
}

type afterState struct {
	N     int                `json:"n"`
	State *checkpoints.State `json:"state"`
	// Written: a tool of ours wrote it, so it is known although the turn goes on.
	Written bool `json:"written,omitempty"`
	// Temp is the unique part of the temporary name that the write uses: what
	// a crash leaves under it is removed.
	Temp string `json:"temp,omitempty"`
	// Shared are other sessions whose turn was open too when the path changed.
	Shared []string `json:"shared,omitempty"`
}

// knownRecord fixes after states of turns that have ended: of files that were
// too large to be read then, and have been recognized since.
type knownRecord struct {
	Type   string       `json:"type"` // known
	Afters []afterState `json:"afters"`
}

// endRecord ends a turn, or (open) leaves it open while the session is closed.
type endRecord struct {
	Type   string       `json:"type"` // end
	Turn   string       `json:"turn"`
	Why    string       `json:"why"` // turn_end, entry, rewind, close
	At     int64        `json:"at,omitempty"`
	Afters []afterState `json:"afters,omitempty"`
	Open   bool         `json:"open,omitempty"`
	// Of a tracked session: the capture that the turn ends with, and intervals
	// that it has replaced, for it knows better.
	Mark workspace.Mark `json:"mark,omitempty"`
	Drop []int          `json:"drop,omitempty"`
	// Unseen is what that capture could not see; see seenRecord.
	Unseen []Uncovered `json:"unseen,omitempty"`
	// Dark: see seenRecord.
	Dark bool `json:"dark,omitempty"`
}

// reopenRecord: the turn goes on after the session was closed with it open.
type reopenRecord struct {
	Type string         `json:"type"` // reopen
	Turn string         `json:"turn"`
	Mark workspace.Mark `json:"mark,omitempty"`
	// As of seenRecord.
	Unseen []Uncovered        `json:"unseen,omitempty"`
	Rules  []*workspace.Rules `json:"rules,omitempty"`
}

// rewindRecord is the intent of a rewind or redo, written before anything is
// changed; a rewoundRecord of the same id says what came of it. A log that
// ends in between is recovered when it is opened for writing.
type rewindRecord struct {
	Type         string             `json:"type"` // rewind
	ID           string             `json:"id"`
	At           int64              `json:"at,omitempty"`
	RedoOf       string             `json:"redoOf,omitempty"` // a redo: the rewind that it undoes
	Target       string             `json:"target,omitempty"`
	Conversation Conversation       `json:"conversation,omitempty"`
	Some         bool               `json:"some,omitempty"`  // only some paths were asked for
	Child        string             `json:"child,omitempty"` // the staged session of a fork
	Undo         map[string][]int   `json:"undo"`            // path: intervals that go out of play (of a redo: come back)
	Intent       checkpoints.Intent `json:"intent"`
	// Merged are the outside intervals that take the place of those undone by
	// a merge.
	Merged []intervalRecord `json:"merged,omitempty"`
	// Made notes, of paths that the rewind makes or removes, the directories
	// above them as they were: a redo brings them back.
	Made map[string][]checkpoints.Parent `json:"made,omitempty"`
	// What failed already when the plan was made; kept for recovery.
	Failed []checkpoints.Failure `json:"failed,omitempty"`
}

// rewoundRecord is what came of a rewindRecord.
type rewoundRecord struct {
	Type  string   `json:"type"` // rewound
	ID    string   `json:"id"`
	Done  []string `json:"done"`            // paths of steps that are as they should be
	Kept  []string `json:"kept,omitempty"`  // paths of steps that failed: their intervals stay
	Moved bool     `json:"moved,omitempty"` // the conversation moved, or the child is to be published
}

// evictRecord folds the turns up to and with an entry into the baseline.
type evictRecord struct {
	Type    string `json:"type"` // evict
	Through string `json:"through"`
}

// forkedRecord ends the copied part of a fork's log: its turns have ended.
type forkedRecord struct {
	Type string `json:"type"` // forked
	Leaf string `json:"leaf,omitempty"`
	// Evicted is the newest user entry that the source could not be rewound to.
	Evicted string   `json:"evicted,omitempty"`
	Dropped []string `json:"dropped,omitempty"`
	// Boundary is how many of the copied intervals are not newer than when a turn
	// of the source last began or ended.
	Boundary int `json:"boundary,omitempty"`
}

type labelRecord struct {
	Type  string `json:"type"` // label
	Entry string `json:"entry"`
	Label string `json:"label"` // "" clears
	At    int64  `json:"at,omitempty"`
}

type titleRecord struct {
	Type  string `json:"type"` // title
	Title string `json:"title"`
	At    int64  `json:"at,omitempty"`
}

type dirsRecord struct {
	Type                  string   `json:"type"` // dirs
	AdditionalDirectories []string `json:"additionalDirectories"`
}

// stateRecord keeps the driver's own state at an entry (driver.go says how).
// It names every content that it needs, so that it can be copied to a fork and
// nothing else has to be asked what must not be collected.
type stateRecord struct {
	Type   string         `json:"type"` // state
	Entry  string         `json:"entry"`
	Digest blobs.Digest   `json:"digest"` // of the state
	N      int            `json:"n"`      // counts states that are stored against each other, from 0
	Chain  []blobs.Digest `json:"chain"`  // a whole state, then deltas, each against what those before it give
	At     int64          `json:"at,omitempty"`
}

// activity is when somebody asked for what a record says; 0 where nobody did,
// as where a session is opened or closed, or the record is of before records
// had times.
func activity(r any) int64 {
	switch r := r.(type) {
	case *entryRecord:
		return r.CreatedAt
	case *beforeRecord:
		return r.At
	case *afterRecord:
		return r.At
	case *endRecord:
		return r.At
	case *rewindRecord:
		return r.At
	case *labelRecord:
		return r.At
	case *titleRecord:
		return r.At
	case *stateRecord:
		return r.At
	}
	return 0
}

// decodeRecord decodes the object of a line. A type it does not know is an error.
func decodeRecord(object []byte) (any, error) {
	var r any
	switch t := recordType(object); t {
	case "session":
		r = new(headerRecord)
	case "entry":
		r = new(entryRecord)
	case "before":
		r = new(beforeRecord)
	case "after":
		r = new(afterRecord)
	case "end":
		r = new(endRecord)
	case "known":
		r = new(knownRecord)
	case "reopen":
		r = new(reopenRecord)
	case "rewind":
		r = new(rewindRecord)
	case "rewound":
		r = new(rewoundRecord)
	case "seen":
		r = new(seenRecord)
	case "outside":
		r = new(outsideRecord)
	case "evict":
		r = new(evictRecord)
	case "forked":
		r = new(forkedRecord)
	case "label":
		r = new(labelRecord)
	case "title":
		r = new(titleRecord)
	case "dirs":
		r = new(dirsRecord)
	case "state":
		r = new(stateRecord)
	case "agent":
		r = new(agentRecord)
	case "setting":
		r = new(settingRecord)
	case "message":
		r = new(messageRecord)
	default:
		return nil, fmt.Errorf("a record of type %q, which this oinod does not know", t)
	}
	if err := json.Unmarshal(object, r); err != nil {
		return nil, err
	}
	return r, nil
}

// recordType reads the type that every record starts with.
func recordType(object []byte) string {
	rest, ok := bytes.CutPrefix(object, []byte(`{"type":"`))
	if !ok {
		return ""
	}
	name, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return ""
	}
	return string(name)
}

// encodeRecord is the object of r's line. What is large in it is spliced in:
// encoding/json would go through it byte by byte, twice.
func encodeRecord(r any) ([]byte, error) {
	switch r := r.(type) {
	case *entryRecord:
		if len(r.Content) > longContent && bytes.IndexByte(r.Content, '\n') < 0 { // and it is valid
			rest := *r
			rest.Content = json.RawMessage("0")
			return encodeAround(&rest, splice{`,"content":`, "0", r.Content})
		}
	case *rewindRecord:
		if len(r.Intent.Steps) > 0 {
			rest := *r
			rest.Undo, rest.Intent.Steps = nil, nil
			undo, err := appendUndo(nil, r.Undo)
			if err != nil {
				return nil, err
			}
			steps, err := checkpoints.AppendSteps(nil, r.Intent.Steps)
			if err != nil {
				return nil, err
			}
			return encodeAround(&rest, splice{`,"undo":`, "null", undo}, splice{`,"intent":{"steps":`, "null", steps})
		}
	case *rewoundRecord:
		if len(r.Done) > 0 {
			rest := *r
			rest.Done = nil
			done, err := appendStrings(nil, r.Done)
			if err != nil {
				return nil, err
			}
			return encodeAround(&rest, splice{`,"done":`, "null", done})
		}
	}
	return encodeJSON(r)
}

// longContent is from which length on a content is spliced in.
const longContent = 4 << 10

// splice is a value that stands after name in place of another. Name and the
// other together are what an object's string cannot hold unescaped.
type splice struct {
	name, instead string
	value         []byte
}

// encodeAround encodes r with its splices, given in their order.
func encodeAround(r any, splices ...splice) ([]byte, error) {
	rest, err := encodeJSON(r)
	if err != nil {
		return nil, err
	}
	size := len(rest)
	for _, s := range splices {
		size += len(s.value)
	}
	b := make([]byte, 0, size)
	for _, s := range splices {
		before, after, ok := bytes.Cut(rest, []byte(s.name+s.instead))
		if !ok {
			return nil, fmt.Errorf("a record's line without its %s: %.80q", s.name, rest)
		}
		b = append(append(append(b, before...), s.name...), s.value...)
		rest = after
	}
	return append(b, rest...), nil
}

// appendUndo appends a rewindRecord's Undo, in the order of its paths.
func appendUndo(b []byte, undo map[string][]int) ([]byte, error) {
	b = append(b, '{')
	for i, path := range slices.Sorted(maps.Keys(undo)) {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = checkpoints.AppendString(b, path); err != nil {
			return nil, err
		}
		b = append(b, ':', '[')
		for i, n := range undo[path] {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(n), 10)
		}
		b = append(b, ']')
	}
	return append(b, '}'), nil
}

func appendStrings(b []byte, list []string) ([]byte, error) {
	size := 2
	for _, s := range list {
		size += len(s) + 3
	}
	b = append(slices.Grow(b, size), '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = checkpoints.AppendString(b, s); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// encodeJSON is v as it is kept: a message as it was said, not escaped for HTML.
func encodeJSON(v any) ([]byte, error) { return checkpoints.AppendValue(nil, v) }
