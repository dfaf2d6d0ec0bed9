package workspace

import "time"

func processorTime(bool) time.Duration { return 0 }
