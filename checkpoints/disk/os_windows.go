package disk

import "golang.org/x/sys/windows"

// NoFollow, in the flag of OpenFile, would refuse a link at the end of the
// name; there is no such flag on Windows.
const NoFollow = 0

// errLink is what NoFollow says of a link.
const errLink = windows.ERROR_CANT_RESOLVE_FILENAME

// unsyncable: a directory cannot be synced on Windows, and its names need no
// sync of their own there.
func unsyncable(error) bool { return true }
