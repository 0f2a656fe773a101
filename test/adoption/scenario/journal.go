// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// entry is what a writer knows of one object of its own.
type entry struct {
	gvr             schema.GroupVersionResource
	namespace, name string
	// path leads to the number that counts the writes.
	path []string
	// seq is the number of the last write that was acknowledged.
	seq int64
	uid types.UID
	// exists says whether the last acknowledged write left an object.
	exists bool
	// doubtful is set when a later write failed: it may have happened or not.
	doubtful bool
}

func (e *entry) key() string { return objectKey(e.gvr, e.namespace, e.name) }

// Journal is what a set of writers did.
type Journal struct {
	mu sync.Mutex

	entries map[string]*entry
	// acknowledged counts the writes that succeeded, conflicts those of them that needed another read first.
	acknowledged, conflicts int
	// errors are the writes that failed for good, reverted the reads that showed an older state than the last write.
	errors, reverted []string
	// slowest is the longest that one write took.
	slowest time.Duration
}

func newJournal() *Journal { return &Journal{entries: map[string]*entry{}} }

// record keeps the outcome of a write. Only the writer that owns the entry calls it for that entry.
func (j *Journal) record(e *entry, took time.Duration, err error, done func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries[e.key()] = e
	j.slowest = max(j.slowest, took)
	if err != nil {
		e.doubtful = true
		j.errors = append(j.errors, e.key()+": "+describe(err))
		return
	}
	e.doubtful = false
	j.acknowledged++
	done()
}

// describe is the text of an error with what the server said beside the message:
// the aggregator's reasons stand there.
func describe(err error) string {
	texts := []string{err.Error()}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil {
		for _, cause := range status.ErrStatus.Details.Causes {
			texts = append(texts, "("+cause.Message+")")
		}
	}
	return strings.Join(texts, " ")
}

// compare reports a read of an object that shows less than was acknowledged.
func (j *Journal) compare(e *entry, object *unstructured.Unstructured) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if problem := e.problem(object); problem != "" {
		j.reverted = append(j.reverted, problem)
	}
}

// problem says what is wrong with the object (nil when absent), "" if nothing.
func (e *entry) problem(object *unstructured.Unstructured) string {
	switch {
	case object == nil && e.exists && !e.doubtful:
		return e.key() + " is lost"
	case object == nil:
		return ""
	case !e.exists && !e.doubtful:
		return e.key() + " is back although its deletion was acknowledged"
	case e.exists && object.GetUID() != e.uid && !e.doubtful:
		return fmt.Sprintf("%s has UID %s, was created with %s", e.key(), object.GetUID(), e.uid)
	}
	seq, _, err := unstructured.NestedInt64(object.Object, e.path...)
	if err != nil {
		return e.key() + ": " + err.Error()
	}
	if seq < e.seq || (seq > e.seq && !e.doubtful) {
		return fmt.Sprintf("%s holds write %d, acknowledged was %d", e.key(), seq, e.seq)
	}
	return ""
}

// Summary tells the numbers.
func (j *Journal) Summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("%d writes acknowledged, %d conflicts read again, %d errors, %d reverted reads, slowest write %s",
		j.acknowledged, j.conflicts, len(j.errors), len(j.reverted), j.slowest.Round(time.Millisecond))
}

// Acknowledged is the number of writes that succeeded so far.
func (j *Journal) Acknowledged() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acknowledged
}

// MustBeKept fails the test when an acknowledged write is missing or reverted
// at the server of the clients.
func (j *Journal) MustBeKept(tb testing.TB, g *Group) {
	tb.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.reverted[:min(len(j.reverted), maxDifferences)] {
		tb.Errorf("a read during the move: %s", line)
	}
	present := map[string]*unstructured.Unstructured{}
	for _, gvr := range []schema.GroupVersionResource{g.Gadgets("v1"), g.Planets()} {
		list, err := g.HostClient(tb, gvr).List(Context(tb), metav1.ListOptions{})
		if err != nil {
			tb.Fatal(err)
		}
		for i, item := range list.Items {
			present[objectKey(gvr, item.GetNamespace(), item.GetName())] = &list.Items[i]
		}
	}
	problems := 0
	for key, e := range j.entries {
		if problem := e.problem(present[key]); problem != "" {
			if problems++; problems <= maxDifferences {
				tb.Errorf("after the move: %s", problem)
			}
		}
	}
	if problems > maxDifferences {
		tb.Errorf("after the move: %d objects of writers are wrong in all", problems)
	}
}

// MustHaveNoErrors fails the test when any write failed.
func (j *Journal) MustHaveNoErrors(tb testing.TB) {
	tb.Helper()
	j.MustHaveOnlyErrors(tb, "")
}

// MustHaveOnlyErrors fails the test when any write failed for another reason
// than the one given, and logs how many failed for that one.
func (j *Journal) MustHaveOnlyErrors(tb testing.TB, allowed string) {
	tb.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(j.errors), func(line string) bool {
		return allowed != "" && strings.Contains(line, allowed)
	})
	if known := len(j.errors) - len(others); known > 0 {
		tb.Logf("%d writes failed by %s", known, allowed)
	}
	for _, line := range others[:min(len(others), maxDifferences)] {
		tb.Errorf("a write failed: %s", line)
	}
	if len(others) > maxDifferences {
		tb.Errorf("%d writes failed in all", len(others))
	}
}

// WaitWrites waits until n more writes were acknowledged, so that a move happens under load.
func (j *Journal) WaitWrites(tb testing.TB, n int) {
	tb.Helper()
	target := j.Acknowledged() + n
	err := Poll(Context(tb), func(context.Context) error {
		if got := j.Acknowledged(); got < target {
			return fmt.Errorf("%d of %d writes", got, target)
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("writers do not get on: %v: %s", err, j.Summary())
	}
}
