package workspace

// hooked is the real file system with failures and lies put in its way. A nil
// hook does nothing.
type hooked struct {
	openTop func() error
	openDir func(rel string) error
	names   func(rel string) error // after half of the names
	lstat   func(rel string, s *stat) error
	open    func(rel string) error
	read    func(rel string) // before a file's bytes are read
}

func (h *hooked) openRoot(path string) (rootDir, error) {
	if h.openTop != nil {
		if err := h.openTop(); err != nil {
			return nil, err
		}
	}
	r, err := osMachine{}.openRoot(path)
	if err != nil {
		return nil, err
	}
	return &hookedRoot{r, h}, nil
}

type hookedRoot struct {
	rootDir
	h *hooked
}

func (r *hookedRoot) openDir(rel string) (dir, error) {
	if r.h.openDir != nil {
		if err := r.h.openDir(rel); err != nil {
			return nil, err
		}
	}
	d, err := r.rootDir.openDir(rel)
	if err != nil {
		return nil, err
	}
	return &hookedDir{d, r.h, rel}, nil
}

type hookedDir struct {
	dir
	h   *hooked
	rel string
}

func (d *hookedDir) names(f func(name []byte, k kind)) error {
	if d.h.names == nil {
		return d.dir.names(f)
	}
	n := 0
	fail := d.h.names(d.rel)
	err := d.dir.names(func(name []byte, k kind) {
		if n++; fail == nil || n%2 == 0 {
			f(name, k)
		}
	})
	if fail != nil {
		return fail
	}
	return err
}

func (d *hookedDir) lstat(name string) (stat, error) {
	s, err := d.dir.lstat(name)
	if err == nil && d.h.lstat != nil {
		err = d.h.lstat(join(d.rel, name), &s)
	}
	return s, err
}

func (d *hookedDir) open(name string) (file, error) {
	rel := join(d.rel, name)
	if d.h.open != nil {
		if err := d.h.open(rel); err != nil {
			return nil, err
		}
	}
	f, err := d.dir.open(name)
	if err != nil {
		return nil, err
	}
	return &hookedFile{f, d.h, rel}, nil
}

type hookedFile struct {
	file
	h   *hooked
	rel string
}

func (f *hookedFile) Read(b []byte) (int, error) {
	if f.h.read != nil {
		f.h.read(f.rel)
	}
	return f.file.Read(b)
}

func (f *hookedFile) stat() (stat, error) {
	s, err := f.file.stat()
	if err == nil && f.h.lstat != nil {
		err = f.h.lstat(f.rel, &s)
	}
	return s, err
}
