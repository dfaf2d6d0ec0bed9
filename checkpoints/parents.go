package checkpoints

// Parents notes the directories above the resolved path as they are now, as
// Capture does.
func (w *Workspace) Parents(path string) []Parent {
	p, err := w.locate(path)
	if err != nil {
		return nil
	}
	parents, err := p.seeParents(nil)
	if err != nil {
		return nil
	}
	return p.parentsOf(view{parents: parents})
}
