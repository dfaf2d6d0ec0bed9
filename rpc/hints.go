package rpc

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// What an agent says of the paths that it is about to touch is a hint: it may
// come too late, be incomplete or wrong. So each path is only looked at, and
// what a message says a file held is never believed.
//
// Nor is a path claimed by it for the session (as session/claim.go has it), also
// where the file now holds what a diff says. A claim is told between two
// captures, which wait for the change to be over; the agent's change is older
// than its message, and a capture of another session may lie between the two:
// it has seen the change as nobody's already, and a claim behind it would tell
// of a way back and forth that nobody went. And what was there right before,
// which a claim has to say, only the agent has seen: another session's change
// of a moment ago would become this one's, and be rewound with it.

// toolHints is a tool call as its start, an update, or a request for permission
// tells it. In protocol version 2 a diff names its paths in changes.
type toolHints struct {
	Kind      string          `json:"kind"`
	Locations json.RawMessage `json:"locations"`
	Content   json.RawMessage `json:"content"`
	RawInput  json.RawMessage `json:"rawInput"`
}

// readingKinds are the kinds of tools that change nothing.
var readingKinds = map[string]bool{"read": true, "search": true, "fetch": true, "think": true, "switch_mode": true}

// changingKinds are the kinds of tools that change the paths they name.
var changingKinds = map[string]bool{"edit": true, "delete": true, "move": true}

// changes reports whether a tool call says that it changes the paths it names,
// so that those are to be told which nothing covers. Others may only work there.
func (call toolHints) changes() bool {
	return changingKinds[call.Kind] || slices.ContainsFunc(elements(call.Content), isDiff)
}

// isDiff reports whether a block of a tool call is a diff.
func isDiff(block json.RawMessage) bool { return memberOf(block, "type") == "diff" }

// maxHints is how many paths one message can name.
const maxHints = 1000

// hintsOf are the paths that a tool call names, absolute, each once.
func hintsOf(call toolHints, cwd string) []string {
	h := hints{cwd: cwd, seen: map[string]bool{}}
	// Each by itself: one that is wrong says nothing about the others.
	for _, location := range elements(call.Locations) {
		h.add(memberOf(location, "path"))
	}
	for _, block := range elements(call.Content) {
		if !isDiff(block) {
			continue
		}
		h.add(memberOf(block, "path"))
		for _, change := range elements(within(block, span{0, len(block)}, "changes").of(block)) {
			h.add(memberOf(change, "path"))
			h.add(memberOf(change, "oldPath"))
		}
	}
	h.input(call.RawInput, 3)
	return h.paths
}

// memberOf is the string that an object has under a name, or "".
func memberOf(object []byte, name string) string {
	return unquote(within(object, span{0, len(object)}, name).of(object))
}

type hints struct {
	cwd   string
	paths []string
	seen  map[string]bool
}

func (h *hints) add(path string) {
	path = strings.TrimPrefix(path, "file://")
	if path == "" || len(path) > 4096 || strings.ContainsAny(path, "\n\x00") || len(h.paths) == maxHints {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(h.cwd, path)
	}
	// The working directory itself is where a command runs, not what it changes.
	if path = filepath.Clean(path); path != filepath.Clean(h.cwd) && !h.seen[path] {
		h.seen[path] = true
		h.paths = append(h.paths, path)
	}
}

// pathNames are names of arguments that agents' tools have paths in, in lower
// case and without separators.
var pathNames = map[string]bool{
	"path": true, "paths": true, "file": true, "files": true, "filename": true, "filepath": true, "filepaths": true,
	"absolutepath": true, "relativepath": true, "targetfile": true, "targetpath": true, "notebookpath": true,
	"oldpath": true, "newpath": true, "source": true, "sourcepath": true, "destination": true, "destinationpath": true,
}

var separators = strings.NewReplacer("_", "", "-", "")

// input looks for paths in a tool's arguments, depth objects deep.
func (h *hints) input(raw json.RawMessage, depth int) {
	if len(raw) == 0 || raw[0] != '{' || depth == 0 {
		return
	}
	for name, value := range members(raw) {
		named := pathNames[strings.ToLower(separators.Replace(name))]
		switch value[0] {
		case '"':
			if named {
				h.add(unquote(value))
			}
		case '[':
			for _, element := range elements(value) {
				if element[0] == '"' && named {
					h.add(unquote(element))
				} else {
					h.input(element, depth-1)
				}
			}
		case '{':
			if name == "changes" { // of a patch: by path
				for path := range members(value) {
					h.add(path)
				}
			}
			h.input(value, depth-1)
		}
	}
}
