package main

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/oino-dev/oinod/session"
)

// How soon serve first looks for idle logs, and how often. Many clients start
// a process for each message: those are gone before it has cost them anything.
const (
	firstLook = time.Minute
	nextLook  = time.Hour
)

// compressIdle compresses logs that nobody has written to for the time after,
// in the background, one at a time on one core. The returned function ends it,
// in the middle of a log if need be, and waits for that. After 0 it does nothing.
func compressIdle(ctx context.Context, r *session.Registry, after time.Duration, log zerolog.Logger) (end func()) {
	if after <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := min(firstLook, after); ; wait = min(nextLook, max(after, time.Second)) {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			packed, err := r.Pack(ctx, after)
			if err != nil && ctx.Err() == nil {
				log.Warn().Err(err).Msg("idle logs are not compressed")
			} else if packed.Sessions > 0 {
				log.Info().Int("sessions", packed.Sessions).Int64("before", packed.Before).Int64("after", packed.After).Msg("idle logs are compressed")
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
