package checkpoints

// FileDiff is how one path differs between two states.
type FileDiff struct {
	Path      string
	Change    Change
	Additions int
	Deletions int
	Binary    bool
	Patch     string // unified, with n lines of context; "" for a binary or unkept content
}

// Diff compares target (read from the blob store) with what is at path now.
func (w *Workspace) Diff(path string, target State, now State, context int) FileDiff {
	panic("unwritten")
}
