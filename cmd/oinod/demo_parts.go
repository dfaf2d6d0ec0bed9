package main

import (
	"fmt"
	"os"
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

// open introduces us to oinod and begins a session.
func (s *story) open() {
	var hello struct {
		AgentInfo struct {
			Name string `json:"name"`
		} `json:"agentInfo"`
	}
	s.ask("initialize", with{"protocolVersion": 1, "clientCapabilities": with{
		"_meta": with{"oino": with{"sessionBeforeFork": true}},
	}}, &hello)
	s.is("the agent's name", hello.AgentInfo.Name, "oinod")
	var made struct {
		SessionID string `json:"sessionId"`
	}
	s.ask("session/new", with{"cwd": s.work, "mcpServers": []string{}}, &made)
	s.session = made.SessionID
}

// youWrite is an edit that no tool of oinod's makes, and how you would tell it.
func (s *story) youWrite(name, content, told string) {
	if s.err == nil {
		s.err = os.WriteFile(s.path(name), []byte(content), 0o644)
		s.line("you", "%s", told)
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

// checkpoints lists the points that can be gone back to: each as its message
// and how many files its turn changed.
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
		got = append(got, fmt.Sprintf("“%s”, %s", c.Text, count(len(c.Files), "file")))
	}
	s.same("the checkpoints", got, want)
	for i, c := range got {
		s.line("oinod", "checkpoint %d: before %s", i+1, c)
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
	s.is("how often the hook was asked", s.hookAsked-asked, 1)
	s.is("the text for the composer", answer.Text, wantText)
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
	s.ask("session/list", with{"cwd": s.work}, &answer)
	s.is("how many sessions there are", len(answer.Sessions), want)
	s.line("oinod", "%s in this project", count(len(answer.Sessions), "session"))
}

// count is n things as a person says it.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
