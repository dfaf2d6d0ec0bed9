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
// What is under the temporary name, see clearTemp.
func (a *act) takeStock() {
	for _, j := range a.byDepth() {
		if j.fail != nil {
			continue
		}
		v, _ := j.p.view(nil, nil, digest)
		if !a.clearTemp(j, v) {
			continue
		}
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

// clearTemp removes what an earlier Act left under the temporary name: the new
// thing, finished or not, or what was there, which is saved. Anything else there
// was saved by somebody in the last instant before a swap (see supplant,
// takeAway). It gets its name back, where the path is as its step says; else
// somebody has made something else since, and it is kept where it is. Before a
// swap the path is as it was, and what is under the temporary name is ours
// though a power cut has garbled it. It reports whether there is anything more to
// do for the job; v is what is at its path.
func (a *act) clearTemp(j *job, v view) (more bool) {
	if j.Temp == "" || j.temp.disk == nil {
		return true
	}
	left, _ := j.temp.view(nil, nil, digest)
	if left.info == nil || a.isFrom(j, v.state) || a.w.isLeftover(j.temp, left, []State{j.To, j.From}) {
		a.unstage(j)
		return true
	}
	if a.isTo(j, v.state) {
		putBack := func() error { return j.temp.exchange(j.p) }
		if j.To.Kind == Absent {
			putBack = func() error { return j.p.publish(j.temp) }
		}
		if twice(putBack) == nil {
			j.changed(view{})
			a.unstage(j) // what it was swapped with
			a.touch(j.p, j.p.dir())
			return false
		}
	}
	j.failed(CodeConflict, "changed outside the session at the last moment, and again since; what was saved first is kept as %s", j.temp.path)
	j.temp = place{}
	return false
}
