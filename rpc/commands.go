package rpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// Slash commands, for editors that know nothing of us: a prompt that starts
// with one is no message of the conversation.
const (
	cmdCheckpoints = "checkpoints"
	cmdDiff        = "diff"
	cmdRewind      = "rewind"
	cmdRedo        = "redo"
)

// names is what our commands are called where somebody else has one of our
// names; nil: their own.
type names map[string]string

// prefixed is what a command of ours is called whose name is taken.
const prefixed = "oino-"

func (n names) of(command string) string {
	if name := n[command]; name != "" {
		return name
	}
	return command
}

// command is the command that is called word, or "". With names of any kind
// each also has its longer name, unless that is in them for itself: it is
// somebody else's.
func (n names) command(word string) string {
	for _, c := range commandList(nil) {
		if n.of(c.Name) == word || n != nil && prefixed+c.Name == word && n[word] == "" {
			return c.Name
		}
	}
	return ""
}

func commandList(n names) []protocol.Command {
	all := []protocol.Command{
		{Name: cmdCheckpoints, Description: "List what can be rewound to"},
		{Name: cmdDiff, Description: "Show what changed since a checkpoint (the newest one without a number)",
			Input: &protocol.CommandInput{Hint: "number of the checkpoint"}},
		{Name: cmdRewind, Description: "Bring files (and the conversation) back to a checkpoint",
			Input: &protocol.CommandInput{Hint: "number of the checkpoint, --files for the files only"}},
		{Name: cmdRedo, Description: "Undo the last rewind"},
	}
	for i := range all {
		all[i].Name = n.of(all[i].Name)
	}
	return all
}

// announce tells the client which commands a session has.
func (s *server) announce(sessionID string) {
	s.client.update(sessionID, protocol.Commands{
		SessionUpdate: protocol.AvailableCommandsUpdate, AvailableCommands: commandList(nil),
	})
}

// usage says what is wrong with a command, and what it takes.
func (n names) usage(c command) string {
	takes := ""
	switch c.name {
	case cmdDiff:
		takes = " [NUMBER]"
	case cmdRewind:
		takes = " [NUMBER] [--files]"
	}
	text := fmt.Sprintf("Nothing was done: what is %q? Usage: /%s%s", c.wrong, n.of(c.name), takes)
	if takes != "" {
		text += fmt.Sprintf("\nNUMBER is that of a line of /%s; -1 is the newest.", n.of(cmdCheckpoints))
	}
	return text
}

// command is one that a user typed.
type command struct {
	name  string
	n     int  // 0: none was given
	files bool // --files
	wrong string
}

// parseCommand reads a prompt's first text block; ok is false for a message.
func parseCommand(prompt protocol.Blocks, n names) (c command, ok bool) {
	for _, block := range prompt {
		text, isText := block.Text()
		if !isText {
			continue
		}
		name, isCommand := strings.CutPrefix(text, "/")
		if !isCommand {
			return command{}, false
		}
		words := strings.Fields(name)
		if len(words) == 0 || !strings.HasPrefix(name, words[0]) {
			return command{}, false
		}
		if c.name = n.command(words[0]); c.name == "" {
			return command{}, false
		}
		for _, word := range words[1:] {
			c.argument(word)
		}
		return c, true
	}
	return command{}, false
}

func (c *command) argument(word string) {
	n, err := strconv.Atoi(word)
	takesNumber := c.name == cmdDiff || c.name == cmdRewind
	switch {
	case word == "--files" && c.name == cmdRewind:
		c.files = true
	case err == nil && n != 0 && takesNumber && c.n == 0:
		c.n = n
	case c.wrong == "":
		c.wrong = word
	}
}

// command does what the user typed and says so in words. Its errors are
// words too: whoever types a command reads no JSON.
func (s *server) command(ctx context.Context, t *task, opened *session.Session, c command) (any, error) {
	r := run{server: s, task: t, session: opened, names: s.host.commands(opened.ID())}
	var text string
	var err error
	switch {
	case c.wrong != "":
		text = r.names.usage(c)
	case c.name == cmdCheckpoints:
		text, err = r.checkpoints(ctx)
	case c.name == cmdDiff:
		text, err = r.diff(ctx, c)
	case c.name == cmdRewind:
		text, err = r.rewind(ctx, c)
	case c.name == cmdRedo:
		text, err = r.redo(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		e := wireError(err)
		logFailure(s.config.Log, "/"+c.name, e)
		text = sentence(e.Message)
	}
	s.say(opened.ID(), text)
	return protocol.PromptResult{StopReason: protocol.EndTurn}, nil
}

// say tells the user something in the place of an agent.
func (s *server) say(sessionID, text string) {
	s.client.update(sessionID, s.client.words(text))
}

// run is one command on its way.
type run struct {
	server  *server
	task    *task
	session *session.Session
	names   names
}

// choice is one checkpoint and its number in the list, 1 for the oldest.
type choice struct {
	session.Checkpoint
	n int
}

func (r *run) choices(ctx context.Context) ([]choice, error) {
	all, err := r.session.Checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	choices := make([]choice, len(all))
	for i, c := range all {
		choices[i] = choice{c, i + 1}
	}
	return choices, nil
}

// pick finds the checkpoint that the user means by n: from the front, or from
// the end where negative.
func (r *run) pick(choices []choice, n int) (choice, error) {
	i := n - 1
	if n < 0 {
		i = len(choices) + n
	}
	if i < 0 || i >= len(choices) {
		return choice{}, &session.Error{Kind: session.CheckpointNotFound, Msg: fmt.Sprintf(
			"there is no checkpoint %d: /%s lists those there are", n, r.names.of(cmdCheckpoints))}
	}
	return choices[i], nil
}

const noCheckpoints = "There is nothing to rewind to: each new message makes a checkpoint."

// line is a checkpoint as a user sees it: "3 · 2 min ago · fix the parser · 4 files".
func (r *run) line(c choice) string {
	parts := []string{strconv.Itoa(c.n), ago(r.server.config.Now().Sub(time.UnixMilli(c.CreatedAt)))}
	if c.Label != "" {
		parts = append(parts, "["+shorten(c.Label)+"]")
	}
	if text := shorten(c.Text); text != "" {
		parts = append(parts, text)
	}
	parts = append(parts, count(len(c.Files), "file"))
	if len(c.Uncovered) > 0 {
		parts = append(parts, "not all covered")
	}
	return strings.Join(parts, " · ")
}

func (r *run) checkpoints(ctx context.Context) (string, error) {
	choices, err := r.choices(ctx)
	if err != nil || len(choices) == 0 {
		return noCheckpoints, err
	}
	return r.listing(choices), nil
}

func (r *run) listing(choices []choice) string {
	lines := make([]string, len(choices))
	for i, c := range choices {
		lines[i] = r.line(c)
	}
	return strings.Join(lines, "\n")
}

func (r *run) diff(ctx context.Context, c command) (string, error) {
	choices, err := r.choices(ctx)
	if err != nil || len(choices) == 0 {
		return noCheckpoints, err
	}
	if c.n == 0 {
		c.n = -1
	}
	chosen, err := r.pick(choices, c.n)
	if err != nil {
		return "", err
	}
	files, err := r.session.Diff(ctx, session.DiffParams{EntryID: chosen.EntryID, Context: diffContext})
	if err != nil {
		return "", err
	}
	return "Since " + r.line(chosen) + ":\n\n" + patches(files), nil
}

func (r *run) redo(ctx context.Context) (string, error) {
	result, err := r.server.host.redo(ctx, r.task, r.session, session.RewindParams{OnConflict: checkpoints.Keep})
	if err != nil {
		return "", err
	}
	return "The rewind is undone.\n" + did.of(result), nil
}

// rewind does what its arguments say, or asks for what they leave open.
func (r *run) rewind(ctx context.Context, c command) (string, error) {
	choices, err := r.choices(ctx)
	if err != nil || len(choices) == 0 {
		return noCheckpoints, err
	}
	c.files = c.files || r.server.filesOnly
	if c.n == 0 {
		return r.rewindByMenu(ctx, choices, c.files)
	}
	chosen, err := r.pick(choices, c.n)
	if err != nil {
		return "", err
	}
	return r.rewindTo(ctx, chosen, c.files, checkpoints.Keep)
}

// rewindTo rewinds and says what it did.
func (r *run) rewindTo(ctx context.Context, to choice, filesOnly bool, on checkpoints.OnConflict) (string, error) {
	result, err := r.server.host.rewind(ctx, r.task, r.session, rewindParams(to, filesOnly, on))
	if err != nil {
		return "", err
	}
	if result.Cancelled {
		return "The rewind was cancelled, nothing has changed: " + result.Reason, nil
	}
	text := "Rewound to " + r.line(to) + "\n" + did.of(result)
	if !filesOnly && result.HasText {
		text += "\nThe conversation is back before this message:\n\n" + result.Text
	}
	return text, nil
}

func rewindParams(to choice, filesOnly bool, on checkpoints.OnConflict) session.RewindParams {
	p := session.RewindParams{EntryID: to.EntryID, Conversation: session.RewindConversation, OnConflict: on, Context: diffContext}
	if filesOnly {
		p.Conversation = session.KeepConversation
	}
	return p
}
