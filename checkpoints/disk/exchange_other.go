//go:build !linux

package disk

import (
	"errors"
	"os"
)

func exchange(*os.File, string, *os.File, string) error { return errors.ErrUnsupported }
