// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync"
	"time"
)

// turnPeriod is how long one storage keeps others waiting at most. A cache of a million
// objects is filled in less; one that takes longer is likely not to be filled at all, as
// an object of it cannot be read, and that must not keep others from their indexes.
const turnPeriod = 5 * time.Minute

// turns lets storages build new caches one after another. A change of an
// AnnexedGroup wants them all at once, and with two full caches of every
// resource at the same time a server may not have the memory. Nil turns are always free.
type turns struct {
	period time.Duration
	taken  chan struct{}
}

// newTurns returns turns that end after a period even if they are not given back.
func newTurns(period time.Duration) *turns {
	return &turns{period: period, taken: make(chan struct{}, 1)}
}

// take waits for the turn until ctx is done. The function that it returns gives it back.
func (t *turns) take(ctx context.Context) (giveBack func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-t.taken })
	timer := time.AfterFunc(t.period, free)
	return func() {
		timer.Stop()
		free()
	}, nil
}
