// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

const (
	// writePause is the pause after a write, answered or refused.
	writePause = 5 * time.Millisecond
	// writtenObjects is how many objects are written in turn.
	writtenObjects = 20
)

// writer changes the status of the first endpoints in turn. It never repeats a
// write that a server refuses for now: the next one comes at once.
type writer struct {
	side   cluster.Side
	sizes  cluster.Sizes
	client *rest.RESTClient
	cancel context.CancelFunc
	ended  chan struct{}
	// wrote has room for one message: there was a write since the last look.
	wrote chan struct{}

	// Valid after stop.

	// writes were answered, refused had to wait.
	writes, refused int
	// gap is the longest time from the answer to a write to that of the next one, and slowest the longest time of one of them.
	gap, slowest time.Duration
	// failed is the error of a write that was neither answered nor refused for now.
	failed error
	// acknowledged is the last state of each object that a server has answered for.
	acknowledged map[int]string
}

// startWriter starts a writer at a side.
func startWriter(ctx context.Context, side cluster.Side, sizes cluster.Sizes) (*writer, error) {
	config := dataset.Unlimited(side.Config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	w := &writer{
		side: side, sizes: sizes, client: client,
		ended: make(chan struct{}), wrote: make(chan struct{}, 1), acknowledged: map[int]string{},
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx)
	return w, nil
}

func (w *writer) run(ctx context.Context) {
	defer close(w.ended)
	pause := time.NewTimer(writePause)
	defer pause.Stop()
	var last time.Time
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		sent := time.Now()
		// A write that was begun is finished, so that its outcome is known.
		err := w.write(context.WithoutCancel(ctx), n)
		switch {
		case err == nil:
			now := time.Now()
			if !last.IsZero() {
				w.gap = max(w.gap, now.Sub(last))
			}
			w.slowest = max(w.slowest, now.Sub(sent))
			last = now
			w.writes++
			select {
			case w.wrote <- struct{}{}:
			default:
			}
		case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
			w.refused++
		default:
			w.failed = fmt.Errorf("write %d: %w", n, err)
			return
		}
		pause.Reset(writePause)
	}
}

func (w *writer) write(ctx context.Context, n int) error {
	i, state := n%min(writtenObjects, w.sizes.Endpoints), fmt.Sprintf("write-%d", n)
	err := w.client.Patch(types.MergePatchType).MaxRetries(0).
		AbsPath(dataset.CollectionPath(w.side.Group, dataset.Version, dataset.Endpoints, w.namespace(i)), dataset.ObjectName(dataset.Endpoints, i)).
		Body([]byte(`{"status":{"` + stateField + `":"` + state + `"}}`)).Do(ctx).Error()
	if err == nil {
		w.acknowledged[i] = state
	}
	return err
}

func (w *writer) namespace(i int) string { return dataset.NamespaceName(w.sizes.Namespace(i)) }

// await waits for some more writes.
func (w *writer) await(ctx context.Context, writes int) error {
	for range writes {
		select {
		case <-w.wrote:
		case <-w.ended:
			return fmt.Errorf("the writer ended: %w", w.failed)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stop ends the writer after its present write. It may be called again.
func (w *writer) stop() {
	w.cancel()
	<-w.ended
}

// check returns an error if a write failed, or one that was answered is lost.
func (w *writer) check(ctx context.Context) error {
	if w.failed != nil {
		return w.failed
	}
	client, err := dynamic.NewForConfig(dataset.Unlimited(w.side.Config))
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for i, want := range w.acknowledged {
		name := dataset.ObjectName(dataset.Endpoints, i)
		object, err := client.Resource(w.side.Resource(dataset.Endpoints)).Namespace(w.namespace(i)).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		state, _, err := unstructured.NestedString(object.Object, "status", stateField)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if state != want {
			return fmt.Errorf("a write is lost: the state of %s is %q instead of %q", name, state, want)
		}
	}
	return nil
}

// String sums up.
func (w *writer) String() string {
	return fmt.Sprintf("a writer wrote %d times, was refused %d times and for %.2f s at most, its slowest write took %.2f s",
		w.writes, w.refused, w.gap.Seconds(), w.slowest.Seconds())
}
