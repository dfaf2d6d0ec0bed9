package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/delta"
)

// The driver's own states are large and much alike: an agent puts all that it
// knows after each message. So a state is stored against the nearest one at or
// above its entry, as a delta of which only the difference takes room, wherever
// in the state it lies.
//
// A chain in which each is stored against the one before would make the newest
// cost reading all. Here the states of a chain are counted, and number n is
// stored against number n with its lowest 1 bit cleared: 7 against 6, 6 against
// 4, 4 against 0, which is whole. So reading one takes as many deltas as n has
// 1 bits, and a difference is stored once for each bit of n at most. The base of
// n is on the way from n-1 to 0, so the state before is all that must be known.
// A chain ends, and the next state is whole, where n would need more bits than
// chainBits or the delta would be no bargain. 100 states of 2 MiB that do not
// compress and differ by 10 KiB each take 5.5 MiB, and reading one takes 6
// contents at most. At most two states are in memory at a time.
const (
	chainBits = 8
	// smallState is always stored whole: its record would be no shorter.
	smallState = 4 << 10
	// maxState is the largest state that PutState takes, in bytes of JSON.
	maxState = 48 << 20
)

// PutState keeps the driver's own state at an entry ("": the leaf), in the
// place of one that is there.
func (s *Session) PutState(ctx context.Context, entryID string, value json.RawMessage) (at string, err error) {
	if len(value) > maxState {
		return "", refuse(BadParams, "a state of %d bytes; at most %d are kept", len(value), maxState)
	}
	end, err := s.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	n, err := s.state.entryOrLeaf(s.id, entryID)
	if err != nil {
		return "", err
	}
	rec, err := s.storeState(value, s.state.stateAbove(n))
	if err != nil {
		return "", storageError("the state could not be kept", err)
	}
	if err := s.syncBlobs(); err != nil {
		return "", err
	}
	rec.Entry = n.id
	return n.id, s.commit(rec)
}

// storeState keeps value, against a base on the way to prev where that saves
// room. prev may be nil.
func (s *Session) storeState(value []byte, prev *stateRecord) (*stateRecord, error) {
	rec := &stateRecord{Type: "state", At: s.now(), Digest: sha256.Sum256(value)}
	if prev != nil && len(value) > smallState && prev.N+1 < 1<<chainBits {
		n := prev.N + 1
		base := prev.Chain[:bits.OnesCount(uint(n))]
		// A base that cannot be read is no reason not to keep this one.
		if content, err := s.readChain(base); err == nil {
			if d := delta.Encode(nil, content, value); len(d) <= len(value)/2 {
				digest, err := s.blobs.Put(d)
				rec.N, rec.Chain = n, append(base[:len(base):len(base)], digest)
				return rec, err
			}
		}
	}
	digest, err := s.blobs.Put(value)
	rec.Chain = []blobs.Digest{digest}
	return rec, err
}

// readChain reads what a chain gives.
func (s *Session) readChain(chain []blobs.Digest) ([]byte, error) {
	var content []byte
	for i, d := range chain {
		b, err := s.blobs.Get(d, maxState)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			content = b
		} else if content, err = delta.Apply(content, b, maxState); err != nil {
			return nil, &blobs.Error{Digest: d, Err: fmt.Errorf("%w: %w", blobs.ErrDamaged, err)}
		}
	}
	return content, nil
}

// GetState gives the state of the nearest entry at or above entryID ("": the leaf).
func (s *Session) GetState(ctx context.Context, entryID string) (at string, value json.RawMessage, err error) {
	s.mu.RLock()
	var n *node
	if entryID != "" || s.state.leaf != nil {
		if n, err = s.state.entryOrLeaf(s.id, entryID); err != nil {
			s.mu.RUnlock()
			return "", nil, err
		}
	}
	rec := s.state.stateAbove(n)
	s.mu.RUnlock()
	if rec == nil {
		return "", nil, refuse(StateNotFound, "no state was put at this entry of session %s or above", s.id)
	}
	value, err = s.readChain(rec.Chain)
	if err == nil && sha256.Sum256(value) != rec.Digest {
		err = &blobs.Error{Digest: rec.Digest, Err: blobs.ErrDamaged}
	}
	if err != nil {
		return "", nil, blobError("the state at entry "+rec.Entry+" cannot be read", err)
	}
	return rec.Entry, value, ctx.Err()
}

// stateAbove is the state of the nearest entry at or above n, or nil.
func (st *state) stateAbove(n *node) *stateRecord {
	for ; n != nil; n = n.parent {
		if rec := st.driver[n.id]; rec != nil {
			return rec
		}
	}
	return nil
}

// applyState folds a state in, of which nothing but its record is kept.
func (st *state) applyState(r *stateRecord) error {
	if len(r.Chain) != bits.OnesCount(uint(r.N))+1 || r.N < 0 || r.N >= 1<<chainBits {
		return errors.New("a state whose chain is not as long as its number says")
	}
	if st.nodes[r.Entry] == nil {
		return fmt.Errorf("a state of entry %s, which is not there", r.Entry)
	}
	st.driver[r.Entry] = r
	return nil
}
