// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"sync"
	"time"
)

// Latencies records how long requests took. Every worker has a Recorder of its own,
// so that workers never wait for each other. All methods may be called from any
// goroutine. Every value is kept: 8 bytes each.
type Latencies struct {
	mu        sync.Mutex
	recorders []*Recorder
}

// Recorder records for one worker.
type Recorder struct {
	// mu is not contended but while a summary is made.
	mu     sync.Mutex
	values []time.Duration
}

// Recorder returns a recorder of one more worker with room for some values.
func (l *Latencies) Recorder(room int) *Recorder {
	r := &Recorder{values: make([]time.Duration, 0, room)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recorders = append(l.recorders, r)
	return r
}

// Record adds a value.
func (r *Recorder) Record(d time.Duration) {
	r.mu.Lock()
	r.values = append(r.values, d)
	r.mu.Unlock()
}

// Since adds the time since start.
func (r *Recorder) Since(start time.Time) { r.Record(time.Since(start)) }

// Seconds are all values so far, in seconds, in no order.
func (l *Latencies) Seconds() []float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var seconds []float64
	for _, r := range l.recorders {
		seconds = r.appendSeconds(seconds)
	}
	return seconds
}

func (r *Recorder) appendSeconds(seconds []float64) []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.values {
		seconds = append(seconds, d.Seconds())
	}
	return seconds
}

// Summary sums up all values so far, in seconds.
func (l *Latencies) Summary() Summary { return Summarize(l.Seconds()) }

// Reset forgets all values, for the next round. The recorders stay.
func (l *Latencies) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recorders {
		r.mu.Lock()
		r.values = r.values[:0]
		r.mu.Unlock()
	}
}
