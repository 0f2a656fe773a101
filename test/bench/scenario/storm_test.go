// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// holding is a watch that ends with its context or by itself.
type holding struct {
	ctx context.Context
	end <-chan error
}

func (h holding) Hold() error {
	select {
	case err := <-h.end:
		return err
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
}

func TestTogether(t *testing.T) {
	broken := errors.New("the watch ended")
	for name, tc := range map[string]struct {
		// ends is why the watch of the first ends, refused why the second is not synced.
		ends, refused, done error
		want                error
	}{
		"all are synced":                     {},
		"a watch ends before all are synced": {ends: broken, want: broken},
		"one is refused":                     {refused: broken, want: broken},
		"measuring fails":                    {done: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan error, 1)
			if tc.ends != nil {
				end <- tc.ends
			}
			calls := 0
			err := together(t.Context(), 3, func(ctx context.Context, i int) (held, error) {
				switch {
				case i == 0:
					return holding{ctx, end}, nil
				case i == 1 && tc.refused != nil:
					return nil, tc.refused
				case i == 2 && tc.ends != nil:
					// This one is not synced before the end.
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return holding{ctx, nil}, nil
			}, func() error {
				calls++
				return tc.done
			})
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("the error is %v, wanted is %v", err, tc.want)
			}
			if all := tc.ends == nil && tc.refused == nil; (calls == 1) != all || calls > 1 {
				t.Errorf("the end was measured %d times, all were synced: %t", calls, all)
			}
		})
	}
}

// TestStormAllCountsOpenWatches lets the first watch be accepted and then refused by an event. The other
// agent has to wait until the first one has another watch.
func TestStormAllCountsOpenWatches(t *testing.T) {
	var watches atomic.Int64
	again := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") == "":
			if r.URL.Query().Get("fieldSelector") == "spec.nodeName=node-0001" {
				select {
				case <-again:
				case <-r.Context().Done():
				}
			}
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[]}`)
		case watches.Add(1) == 1:
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","code":410}}`)
		default:
			if watches.Load() == 2 {
				close(again)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	c := &cluster.Cluster{Options: cluster.Options{Sizes: cluster.Sizes{Shape: dataset.Shape{Nodes: 2, Namespaces: 1}}}}
	var waiting []*restarted
	for node := range 2 {
		agent, err := client.NewAgent(&rest.Config{Host: server.URL}, &client.Throttled{})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, &restarted{Client: agent, node: node})
	}
	defer closeAll(waiting)
	s := &stormAll{cutoff: 10 * time.Second}
	done, err := s.sync(t.Context(), c, cluster.Side{Config: &rest.Config{Host: server.URL}}, waiting)
	if err != nil {
		t.Fatal(err)
	}
	if agents, failed := done.agents.Load(), done.failed.Load(); agents != 2 || failed != 1 {
		t.Errorf("%d agents are synced and %d requests have failed, wanted are 2 and 1", agents, failed)
	}
}
