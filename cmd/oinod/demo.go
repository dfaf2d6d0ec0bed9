package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (p *process) demoCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play one whole story in a temporary directory",
		Long: `Play one whole story over a real "oinod serve" in a temporary directory: two
turns of an agent, an edit of your own, a dry run, a cancelled fork, a rewind,
its redo, and a fork. Each step is checked; exit 1 if anything is not as told.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return failed(p.demo(asJSON)) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the raw lines both ways instead, one JSON object a line")
	return cmd
}

// demo plays the story and leaves nothing behind.
func (p *process) demo(asJSON bool) (err error) {
	dir, err := os.MkdirTemp("", "oinod-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &story{work: filepath.Join(dir, "project"), prose: p.stdout}
	if err := os.Mkdir(s.work, 0o755); err != nil {
		return err
	}

	ctx, stop := orderlyEnd(context.Background())
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	child, err := startPeer(ctx, p.env, filepath.Join(dir, "agent"), p.stderr)
	if err != nil {
		return err
	}
	child.asked = s.asked
	child.trace = func(string, []byte) {}
	if asJSON {
		s.prose = io.Discard
		child.trace = func(direction string, line []byte) {
			fmt.Fprintf(p.stdout, "{\"direction\":%q,\"message\":%s}\n", direction, line)
		}
	}
	s.peer = child
	s.play()
	closeErr := child.close()
	if s.err != nil {
		return fmt.Errorf("the demo did not go as told: %w", s.err)
	}
	if closeErr != nil {
		return fmt.Errorf("the child did not end well: %w", closeErr)
	}
	s.say("\nThat was it. All of it happened as told; the temporary directory is gone.\n")
	s.say("The same as JSON-RPC, line by line: oinod demo --json\n")
	return nil
}

// play is the story. Every step is done, told and checked; after the first
// that fails nothing more is done.
func (s *story) play() {
	s.say("oinod keeps what every file was before an agent changed it, and puts it back\n" +
		"when you ask. Here it does so in a temporary directory. Your part and the\n" +
		"agent's are played; oinod's is the real one.\n")

	s.chapter("Before", "A small project of yours.")
	s.youWrite("hello.txt", "Hello, world!\n", "write hello.txt")
	s.youWrite("notes.txt", "call Ada\n", "write notes.txt")
	s.open()
	s.files("notes.txt: call Ada", "hello.txt: Hello, world!")

	s.chapter("Two turns", "You ask twice, the agent works. oinod keeps what each turn finds.")
	s.prompt("Greet in French, please.")
	s.agentEdits("hello.txt", "Hello", "Bonjour")
	s.agentSays("Done, in French.")
	s.turnEnds("modified hello.txt")
	second := s.prompt("Say goodbye too, and put that in the notes.")
	s.agentWrites("bye.txt", "Au revoir!\n")
	s.agentEdits("hello.txt", "world", "monde")
	s.agentEdits("notes.txt", "call Ada", "call Ada, in French")
	s.agentSays("Done: bye.txt is new.")
	s.turnEnds("created bye.txt", "modified hello.txt", "modified notes.txt")
	s.files("bye.txt: Au revoir!", "hello.txt: Bonjour, monde!", "notes.txt: call Ada, in French")

	s.chapter("Your own edit", "Meanwhile you write into a file that the agent changed as well.")
	s.youWrite("notes.txt", "call Ada, in French\nbuy milk\n", "add “buy milk” to notes.txt")
	s.checkpoints("“Greet in French, please.”, 1 file", "“Say goodbye too, and put that in the notes.”, 3 files")

	s.chapter("A dry run", "What would it take to undo the second request? Nothing changes yet.")
	kept := "changed outside the session"
	s.rewind(second, with{"dryRun": true, "conversation": "rewind"},
		outcome{restored: "hello.txt", deleted: "bye.txt", conflict: "notes.txt", because: kept})
	s.files("bye.txt: Au revoir!", "hello.txt: Bonjour, monde!", "notes.txt: call Ada, in French | buy milk")

	s.chapter("Somebody objects", "Before a conversation forks or moves, hooks are asked. Here the client says no.")
	s.objection = "the tests are still running"
	s.rewind(second, with{"conversation": "fork"}, outcome{cancelled: s.objection})
	s.objection = ""
	s.sessions(1)
	s.files("bye.txt: Au revoir!", "hello.txt: Bonjour, monde!", "notes.txt: call Ada, in French | buy milk")

	s.chapter("The rewind", "Now for real: files and conversation go back to before the second request.")
	s.rewind(second, with{"conversation": "rewind"},
		outcome{restored: "hello.txt", deleted: "bye.txt", conflict: "notes.txt", because: kept,
			text: "Say goodbye too, and put that in the notes."})
	s.conversation("you: Greet in French, please.", "agent: Done, in French.")
	s.files("hello.txt: Bonjour, world!", "notes.txt: call Ada, in French | buy milk")
	s.say("   Your line in notes.txt is still there. oinod never takes what you wrote\n" +
		"   unless you say so (onConflict: merge or overwrite).\n")

	s.chapter("The redo", "You change your mind. Every rewind can be undone.")
	s.redo("bye.txt", "hello.txt")
	s.conversation("you: Greet in French, please.", "agent: Done, in French.",
		"you: Say goodbye too, and put that in the notes.", "agent: Done: bye.txt is new.")
	s.files("bye.txt: Au revoir!", "hello.txt: Bonjour, monde!", "notes.txt: call Ada, in French | buy milk")

	s.chapter("The fork", "A second conversation goes on from before the second request. Files stay as they are.")
	s.fork(second, "Say goodbye too, and put that in the notes.")
	s.conversation("you: Greet in French, please.", "agent: Done, in French.")
	s.sessions(2)
	s.files("bye.txt: Au revoir!", "hello.txt: Bonjour, monde!", "notes.txt: call Ada, in French | buy milk")
}

// story plays its parts, tells them, and keeps the first thing that was not
// as told. Paths are told relative to work.
type story struct {
	peer      *peer
	work      string
	prose     io.Writer
	session   string // whose turn it is
	objection string // what the client's hook says; "" lets go on
	hookAsked int
	chapters  int
	err       error
}

// with is the optional params of a call.
type with map[string]any

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.prose, format, args...) }

// line tells what who did.
func (s *story) line(who, format string, args ...any) {
	if s.err == nil {
		s.say("   %-7s %s\n", who, fmt.Sprintf(format, args...))
	}
}

func (s *story) chapter(title, what string) {
	if s.err == nil {
		s.chapters++
		s.say("\n%d. %s. %s\n", s.chapters, title, what)
	}
}

// call asks the child about the story's session, unless something went wrong before.
func (s *story) call(method string, params with, result any) {
	params["sessionId"] = s.session
	s.ask(method, params, result)
}

// ask asks the child what is not about a session.
func (s *story) ask(method string, params with, result any) {
	if s.err == nil {
		s.err = s.peer.call(method, params, result)
	}
}

// is checks that got is what was told.
func (s *story) is(what string, got, want any) {
	if s.err == nil && got != want {
		s.err = fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// same checks that the list got is what was told.
func (s *story) same(what string, got, want []string) {
	if s.err == nil && !slices.Equal(got, want) {
		s.err = fmt.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// path is a file of the project, absolute; rel is the way back.
func (s *story) path(name string) string { return filepath.Join(s.work, name) }

func (s *story) rel(paths []string) []string {
	out := make([]string, len(paths))
	for i, path := range paths {
		out[i] = strings.TrimPrefix(path, s.work+string(filepath.Separator))
	}
	slices.Sort(out)
	return out
}

// asked is the client's end of requests that oinod makes.
func (s *story) asked(method string, params json.RawMessage) any {
	if method == "_oino/session_before_fork" {
		s.hookAsked++
		if s.objection != "" {
			return map[string]any{"cancel": true, "reason": s.objection}
		}
	}
	return map[string]any{}
}
