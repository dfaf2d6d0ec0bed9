package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// maxChoices is how many checkpoints a menu offers; older ones have numbers.
const maxChoices = 20

// menuLimit is how long a menu waits.
const menuLimit = time.Hour

// Answers of the menus.
const (
	optBoth   = "files_and_conversation"
	optFiles  = "files_only"
	optCancel = "cancel"
)

const nothingDone = "Nothing was changed."

// errNoMenus is a client that cannot ask its user.
var errNoMenus = errors.New("the client shows no menus")

// rewindByMenu asks the user what the command left open, one menu after the
// other, and shows what would happen before it does.
func (r *run) rewindByMenu(ctx context.Context, choices []choice, filesOnly bool) (string, error) {
	text, err := r.menus(ctx, choices, filesOnly)
	if errors.Is(err, errNoMenus) {
		how := "Say which one: /%[1]s NUMBER for files and conversation, /%[1]s NUMBER --files for the files only.\n\n"
		if r.server.filesOnly {
			how = "Say which one: /%[1]s NUMBER, which brings back files and leaves the conversation.\n\n"
		}
		return fmt.Sprintf(how, r.names.of(cmdRewind)) + r.listing(choices), nil
	}
	return text, err
}

func (r *run) menus(ctx context.Context, choices []choice, filesOnly bool) (string, error) {
	newest := slices.Clone(choices)
	slices.Reverse(newest)
	newest = newest[:min(len(newest), maxChoices)]
	var options []protocol.PermissionOption
	for _, c := range newest {
		options = append(options, protocol.PermissionOption{OptionID: c.EntryID, Name: r.line(c), Kind: protocol.AllowOnce})
	}
	id, err := r.choose(ctx, protocol.ToolCall{ToolFields: protocol.ToolFields{Title: "Rewind to which checkpoint?"}}, options)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(newest, func(c choice) bool { return c.EntryID == id })
	if i < 0 {
		return nothingDone, nil
	}
	to := newest[i]

	preview := rewindParams(to, true, checkpoints.Keep)
	preview.DryRun, preview.Context = true, wholeFile
	shown, err := r.session.Rewind(ctx, preview)
	if err != nil {
		return "", err
	}
	what := []protocol.PermissionOption{
		{OptionID: optBoth, Name: "Files and conversation", Kind: protocol.AllowOnce},
		{OptionID: optFiles, Name: "Files only", Kind: protocol.AllowOnce},
		{OptionID: optCancel, Name: "Cancel", Kind: protocol.RejectOnce},
	}
	if filesOnly {
		what = what[1:]
	}
	id, err = r.choose(ctx, previewCall(r.line(to), shown), what)
	if err != nil {
		return "", err
	}
	if id != optBoth && id != optFiles {
		return nothingDone, nil
	}
	filesOnly = id == optFiles

	on := checkpoints.Keep
	if n := conflicts(shown); n > 0 {
		title := fmt.Sprintf("%s changed outside the session. What should happen to your edits?", count(n, "file"))
		id, err = r.choose(ctx, protocol.ToolCall{ToolFields: protocol.ToolFields{Title: title}}, []protocol.PermissionOption{
			{OptionID: string(checkpoints.Keep), Name: "Keep my edits", Kind: protocol.AllowOnce},
			{OptionID: string(checkpoints.Merge), Name: "Merge", Kind: protocol.AllowOnce},
			{OptionID: string(checkpoints.Overwrite), Name: "Overwrite", Kind: protocol.AllowOnce},
			{OptionID: optCancel, Name: "Cancel", Kind: protocol.RejectOnce},
		})
		if err != nil {
			return "", err
		}
		if on = checkpoints.OnConflict(id); on != checkpoints.Keep && on != checkpoints.Merge && on != checkpoints.Overwrite {
			return nothingDone, nil
		}
	}
	return r.rewindTo(ctx, to, filesOnly, on)
}

// conflicts counts the paths that would be kept as somebody else left them.
func conflicts(r session.RewindResult) int {
	n := 0
	for _, f := range r.Failed {
		if f.Code == checkpoints.CodeConflict {
			n++
		}
	}
	return n
}

// choose shows a tool call and asks the user to choose. "" is a menu that was
// closed; errNoMenus a client without.
func (r *run) choose(ctx context.Context, call protocol.ToolCall, options []protocol.PermissionOption) (string, error) {
	c := r.server.client
	if c.noMenus.Load() {
		return "", errNoMenus
	}
	call.ToolCallID = fmt.Sprintf("oino-menu-%d", c.lastID.Add(1))
	call.Kind, call.Status = "other", "pending"
	if c.version.Load() > 1 { // which shows diffs in another way; what happens is in the text too
		call.Content = slices.DeleteFunc(call.Content, func(content any) bool { _, diff := content.(protocol.ToolDiff); return diff })
	}
	if len(call.Content) > 0 {
		start := call
		start.SessionUpdate = protocol.ToolCallStart
		c.update(r.session.ID(), start)
	}
	var asked any = protocol.PermissionParams{SessionID: c.name(r.session.ID()), ToolCall: call, Options: options}
	if c.version.Load() > 1 {
		asked = protocol.PermissionParams2{
			SessionID: c.name(r.session.ID()), Title: call.Title, Options: options,
			Subject: protocol.PermissionSubject{Type: "tool_call", ToolCall: call},
		}
	}
	var result protocol.PermissionResult
	err := c.ask(ctx, r.task, menuLimit, protocol.RequestPermission, asked, &result)
	if e, ok := errors.AsType[*jsonrpc2.Error](err); ok && (e.Code == protocol.CodeMethodNotFound || e.Code == protocol.CodeInvalidParams) {
		c.noMenus.Store(true)
		return "", errNoMenus
	}
	status := "completed"
	if err != nil || result.Outcome.Outcome != "selected" || result.Outcome.OptionID == optCancel {
		status = "failed"
	}
	// A call left pending would look busy for ever.
	c.update(r.session.ID(), protocol.ToolCall{SessionUpdate: protocol.ToolCallUpdate, ToolCallID: call.ToolCallID, Status: status})
	if err != nil {
		return "", fmt.Errorf("asking for a choice: %w", err)
	}
	if result.Outcome.Outcome != "selected" {
		return "", nil
	}
	return result.Outcome.OptionID, nil
}
