package checkpoints

// mergeConflict says why two sides cannot be merged.
type mergeConflict string

func (c mergeConflict) Error() string { return string(c) }

func mergeParts(now State, parts []Part, read func(State) ([]byte, error)) (State, []byte, error) {
	panic("unwritten")
}
