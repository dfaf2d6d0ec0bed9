package main

import (
	"fmt"
	"strings"
)

// rewound is the answer to a rewind or redo.
type rewound struct {
	Restored []string `json:"restored"`
	Deleted  []string `json:"deleted"`
	Failed   []struct {
		Path  string `json:"path"`
		Error string `json:"error"`
		Code  string `json:"code"`
	} `json:"failed"`
	Text      string `json:"text"`
	Cancelled bool   `json:"cancelled"`
	Reason    string `json:"reason"`
}

// outcome is what a rewind is told to come to; of each list there is at most one.
type outcome struct {
	restored, deleted string
	conflict, because string // a path that is kept, and a part of why
	text, cancelled   string
}

// rewind goes back to before entry, or would.
func (s *story) rewind(entry string, params with, want outcome) {
	params["entryId"] = entry
	var r rewound
	asked := s.hookAsked
	s.call("_oino/rewind", params, &r)
	if s.err != nil {
		return
	}
	asks, restore, remove := 1, "restored", "deleted"
	if params["dryRun"] == true {
		asks, restore, remove = 0, "would restore", "would delete"
	}
	s.is("how often the hook was asked", s.hookAsked-asked, asks)
	s.is("the objection", r.Reason, want.cancelled)
	s.is("whether it was cancelled", r.Cancelled, want.cancelled != "")
	if r.Cancelled {
		s.line("client", "no: %s", r.Reason)
	}
	s.same("what comes back", s.rel(r.Restored), words(want.restored))
	for _, name := range s.rel(r.Restored) {
		s.line("oinod", "%s %s", restore, name)
	}
	s.same("what goes", s.rel(r.Deleted), words(want.deleted))
	for _, name := range s.rel(r.Deleted) {
		s.line("oinod", "%s %s", remove, name)
	}
	s.kept(r, want)
	if want.text != "" {
		s.is("the text for the composer", r.Text, want.text)
		s.line("oinod", "your message, to edit and send again: “%s”", r.Text)
	}
	if r.Cancelled {
		s.line("oinod", "nothing was changed")
	}
}

// kept checks and tells the paths that a rewind left alone.
func (s *story) kept(r rewound, want outcome) {
	var got []string
	for _, f := range r.Failed {
		name := s.rel([]string{f.Path})[0]
		got = append(got, f.Code+" "+name)
		if s.err == nil && !strings.Contains(f.Error, want.because) {
			s.err = fmt.Errorf("%s is kept because %q, want %q in it", name, f.Error, want.because)
		}
		s.line("oinod", "keeps %s: %s", name, f.Error)
	}
	var wanted []string
	if want.conflict != "" {
		wanted = []string{"conflict " + want.conflict}
	}
	s.same("what is kept", got, wanted)
}

// redo undoes the newest rewind.
func (s *story) redo(want ...string) {
	var r rewound
	s.call("_oino/redo", with{}, &r)
	s.same("what the redo brings back", s.rel(r.Restored), want)
	for _, name := range s.rel(r.Restored) {
		s.line("oinod", "brought back %s", name)
	}
}

// words is w as a list: none for "".
func words(w string) []string {
	if w == "" {
		return []string{}
	}
	return []string{w}
}
