package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The parts of the demo's story: yours, the agent's, and oinod's with what is
// checked of it.

// block is an ACP content block of text.
type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// change is one path as a turn's end or a diff names it.
type change struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

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

// open introduces us to oinod and begins a session.
func (s *story) open() {
	var hello struct {
		AgentInfo struct {
			Name string `json:"name"`
		} `json:"agentInfo"`
	}
	s.call("initialize", with{"protocolVersion": 1, "clientCapabilities": with{
		"_meta": with{"oino": with{"sessionBeforeFork": true}},
	}}, &hello)
	s.same("the agent's name", []string{hello.AgentInfo.Name}, []string{"oinod"})
	var made struct {
		SessionID string `json:"sessionId"`
	}
	s.call("session/new", with{"cwd": s.work, "mcpServers": []string{}}, &made)
	s.session = made.SessionID
}

// youWrite is an edit that no tool of oinod's makes.
func (s *story) youWrite(name, content string) {
	if s.err == nil {
		s.err = os.WriteFile(s.path(name), []byte(content), 0o644)
		s.line("you", "write %s yourself", name)
	}
}

// prompt is a message of yours, which starts a turn; it returns its entry.
func (s *story) prompt(text string) string {
	var answer struct {
		Meta struct {
			Oino struct {
				EntryID string `json:"entryId"`
			} `json:"oino"`
		} `json:"_meta"`
	}
	s.call("session/prompt", with{"prompt": []block{{"text", text}}}, &answer)
	s.line("you", "“%s”", text)
	return answer.Meta.Oino.EntryID
}

func (s *story) agentWrites(name, content string) {
	var answer struct{}
	s.call("_oino/write", with{"path": s.path(name), "content": content}, &answer)
	s.line("agent", "writes %s", name)
}

func (s *story) agentEdits(name, from, to string) {
	var answer struct{}
	s.call("_oino/edit", with{"path": s.path(name), "edits": []with{{"oldText": from, "newText": to}}}, &answer)
	s.line("agent", "edits %s: “%s” becomes “%s”", name, from, to)
}

func (s *story) agentSays(text string) {
	var answer struct{}
	s.call("_oino/append", with{"entries": []with{{"role": "assistant", "content": text}}}, &answer)
	s.line("agent", "“%s”", text)
}

// turnEnds tells oinod that what happens from now on is not the agent's doing.
func (s *story) turnEnds(want ...string) {
	var answer struct {
		Changed []change `json:"changed"`
	}
	s.call("_oino/turn_end", with{}, &answer)
	var got []string
	for _, c := range answer.Changed {
		got = append(got, c.Change+" "+s.rel([]string{c.Path})[0])
	}
	slices.Sort(got)
	s.same("what the turn changed", got, want)
	s.line("oinod", "this turn: %s", strings.Join(got, ", "))
}

// files tells what is in the project now: each file's name and lines.
func (s *story) files(want ...string) {
	if s.err != nil {
		return
	}
	slices.Sort(want)
	var got []string
	entries, err := os.ReadDir(s.work)
	for _, e := range entries {
		content, readErr := os.ReadFile(s.path(e.Name()))
		if err == nil {
			err = readErr
		}
		lines := strings.ReplaceAll(strings.TrimSuffix(string(content), "\n"), "\n", " | ")
		got = append(got, e.Name()+": "+lines)
	}
	if s.err = err; err != nil {
		return
	}
	s.same("the files", got, want)
	if s.err != nil {
		return
	}
	s.say("   in the project now:\n")
	for _, f := range got {
		name, lines, _ := strings.Cut(f, ": ")
		s.say("      %-10s %s\n", name, lines)
	}
}

// checkpoints lists the points that can be gone back to.
func (s *story) checkpoints(want ...string) {
	var answer struct {
		Checkpoints []struct {
			Text  string     `json:"text"`
			Files []struct{} `json:"files"`
		} `json:"checkpoints"`
	}
	s.call("_oino/checkpoints", with{}, &answer)
	var got []string
	for _, c := range answer.Checkpoints {
		noun := "files"
		if len(c.Files) == 1 {
			noun = "file"
		}
		got = append(got, fmt.Sprintf("%s (%d %s)", c.Text, len(c.Files), noun))
	}
	s.same("the checkpoints", got, want)
	for i, c := range got {
		s.line("oinod", "checkpoint %d: before “%s”", i+1, strings.Replace(c, " (", "” (", 1))
	}
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
	does := "restored"
	if params["dryRun"] == true {
		does = "would restore"
		s.same("hooks asked by a dry run", []string{fmt.Sprint(s.hookAsked - asked)}, []string{"0"})
	} else {
		s.same("hooks asked", []string{fmt.Sprint(s.hookAsked - asked)}, []string{"1"})
	}
	s.same("the objection", []string{r.Reason}, []string{want.cancelled})
	s.same("whether it was cancelled", []string{fmt.Sprint(r.Cancelled)}, []string{fmt.Sprint(want.cancelled != "")})
	if r.Cancelled {
		s.line("client", "no: %s", r.Reason)
	}
	s.same("restored", s.rel(r.Restored), words(want.restored))
	for _, name := range s.rel(r.Restored) {
		s.line("oinod", "%s %s", does, name)
	}
	s.same("deleted", s.rel(r.Deleted), words(want.deleted))
	for _, name := range s.rel(r.Deleted) {
		s.line("oinod", "%s %s", strings.NewReplacer("restored", "deleted", "restore", "delete").Replace(does), name)
	}
	s.kept(r, want)
	if want.text != "" {
		s.same("the text for the composer", []string{r.Text}, []string{want.text})
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
	s.same("brought back", s.rel(r.Restored), want)
	for _, name := range s.rel(r.Restored) {
		s.line("oinod", "brought back %s", name)
	}
}

// fork begins a second conversation before entry and goes over to it.
func (s *story) fork(entry, wantText string) {
	var answer struct {
		SessionID string   `json:"sessionId"`
		Text      string   `json:"text"`
		Ahead     []string `json:"ahead"`
	}
	asked := s.hookAsked
	s.call("_oino/fork", with{"entryId": entry}, &answer)
	s.same("hooks asked", []string{fmt.Sprint(s.hookAsked - asked)}, []string{"1"})
	s.same("the text for the composer", []string{answer.Text}, []string{wantText})
	s.line("oinod", "a new session; these files are ahead of it: %s", strings.Join(s.rel(answer.Ahead), ", "))
	if s.err == nil && (answer.SessionID == "" || answer.SessionID == s.session) {
		s.err = fmt.Errorf("the fork's id is %q, the source's %q", answer.SessionID, s.session)
	}
	s.session = answer.SessionID
}

// conversation tells what the session holds now.
func (s *story) conversation(want ...string) {
	var answer struct {
		Entries []struct {
			Role    string  `json:"role"`
			Content []block `json:"content"`
		} `json:"entries"`
	}
	s.call("_oino/entries", with{}, &answer)
	var got []string
	for _, e := range answer.Entries {
		who := "you"
		if e.Role == "assistant" {
			who = "agent"
		}
		var text string
		for _, b := range e.Content {
			text += b.Text
		}
		got = append(got, who+": "+text)
	}
	s.same("the conversation", got, want)
	if s.err != nil {
		return
	}
	s.say("   the conversation now:\n")
	for _, line := range got {
		s.say("      %s\n", line)
	}
}

// sessions checks how many sessions the project has.
func (s *story) sessions(want int) {
	var answer struct {
		Sessions []struct{} `json:"sessions"`
	}
	s.call("session/list", with{"cwd": filepath.Clean(s.work)}, &answer)
	s.same("sessions", []string{fmt.Sprint(len(answer.Sessions))}, []string{fmt.Sprint(want)})
	noun := "sessions"
	if want == 1 {
		noun = "session"
	}
	s.line("oinod", "%d %s in this project", len(answer.Sessions), noun)
}

// words is w as a list: none for "".
func words(w string) []string {
	if w == "" {
		return []string{}
	}
	return []string{w}
}
