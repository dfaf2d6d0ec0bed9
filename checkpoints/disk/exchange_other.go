//go:build !linux

package disk

import (
	"errors"
	"os"
)

func exchangeIn(*os.File, string, *os.File, string) error { return errors.ErrUnsupported }
