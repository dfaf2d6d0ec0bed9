package checkpoints

// takeStock finds out how far an earlier Act of the same intent came. For each
// path there are four answers: it is as its step says; it is as it was; what was
// there is set aside and nothing has come yet; or it is something else, which
// somebody made since, and is kept.
//
//	at the path       at aside   the job
//	as its step says  -          is done
//	as its step says  there      is done but for removing what is aside
//	as it was         -          begins anew
//	nothing           there      goes on
//	anything else     either     is a conflict
//
// Something else under the temporary name, where the path is as its step says,
// is what somebody saved at the last moment (see supplant): it is kept there.
func (a *act) takeStock() {
	for _, j := range a.byDepth() {
		if j.fail != nil {
			continue
		}
		v, _ := j.p.view(nil, nil, digest)
		if j.Temp != "" && a.isTo(j, v.state) {
			if left, _ := j.temp.viewSelf(digest); left.info != nil && !left.state.Same(j.To) && !a.isFrom(j, left.state) {
				j.failed(CodeConflict, "changed outside the session at the last moment; that is kept as %s", j.temp.path)
				j.temp = place{}
				continue
			}
		}
		a.unstage(j) // what an unfinished file holds is made again
		aside := false
		if j.Aside != "" {
			_, err := j.aside.lstat()
			aside = err == nil
		}
		switch {
		case a.isTo(j, v.state) && !(aside && j.To.Kind == Absent && v.state.Kind == Absent):
			j.done, j.away = true, aside
		case aside && v.state.Kind == Absent:
			j.away = true
		case a.isFrom(j, v.state) && !aside:
		default:
			j.changed(v)
			j.away, j.stale = aside, aside
		}
		if j.away && j.From.Kind == Dir {
			a.relocate(j)
		}
	}
}

// isTo reports whether state is what the job's step says, but for the mode
// that a directory gets at the end. A path that shall be gone and that others
// need as their directory is there as that.
func (a *act) isTo(j *job, state State) bool {
	switch {
	case state.Same(j.To):
		return true
	case j.To.Kind == Absent && a.wanted[j.Path]:
		return state.Kind == Dir
	case j.To.Kind == Dir && j.From.Kind != Dir && state.Kind == Dir:
		return state.Mode == 0o700
	}
	return false
}
