// Package checkpoints knows what paths of a workspace were and brings them
// back. It hides bytes on disk and in the workspace, and knows nothing of
// conversations.
//
// # Looking
//
// A Workspace is the roots of a session. Resolve turns what a peer calls a
// path into the one name the path has here; Look says what it is now; Capture
// does so and keeps its contents, so that it can come back.
//
// # Rewinding
//
// A rewind is a plan, then an act. NewPlan is a pure function from what is
// known of each path to steps and failures: the decision table. It sees only
// paths that the session's own turns touched; what is not in its input cannot
// be harmed. Prepare verifies every content the plan needs, saves the present,
// and fixes the temporary names. The caller then makes the prepared plan (the
// intent) durable and calls Act, which can be called again with the same
// intent after a crash at any point: it finishes what was begun.
//
// Act goes through the whole plan in phases, so that a full disk is met before
// anything has changed: all new contents are written and synced under
// temporary names beside their targets; then each path is looked at once more
// and replaced by a rename, a thing in the way of another kind being set aside
// under a temporary name; then deletions and what was set aside are removed,
// directories only when empty; then modes of directories.
package checkpoints
