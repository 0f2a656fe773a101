// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtrouble

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	// stock is how many gadgets stay while others come and go.
	stock = 60
	// trouble is how long clients work while revisions are dropped under them.
	trouble = 8 * time.Second
	// compactorKey is where API servers agree who of them compacts (k8s.io/apiserver pkg/storage/etcd3/compact.go).
	compactorKey = "compact_rev_key"
)

// TestCompaction drops old revisions more often than once a second (kubernetes/kubernetes 58067) while clients
// page through lists, watch, write, delete collections, and while an index is built again and again. Nothing
// but success and 410 Expired reaches them, and no list is short. The replicas compact by turns.
func TestCompaction(t *testing.T) {
	ctx := testContext(t)
	c := newClient(t, clusterConfig(t, suite.host))
	for i := range stock {
		c.must(ctx, t, http.MethodPost, gadgets, seedJSON(t, fmt.Sprintf("stock-%03d", i), i))
	}
	etcd := etcdClient(t, suite.annex.Etcd)
	compactedBefore, begin := compactions(ctx, t, etcd), time.Now()
	w := &workers{t: t, c: c, answers: map[string]int{}}
	workCtx, cancel := context.WithTimeout(ctx, trouble)
	defer cancel()
	for _, work := range []func(context.Context){
		func(ctx context.Context) { compact(ctx, t, etcd) },
		w.page, w.page, w.followLatest, w.followOld, w.write, w.write, w.deleteCollections, w.list, w.rebuild,
	} {
		w.work.Go(func() { work(workCtx) })
	}
	w.work.Wait()
	for _, answer := range slices.Sorted(maps.Keys(w.answers)) {
		t.Logf("%6d × %s", w.answers[answer], answer)
	}
	for _, want := range []string{"page 200", "page 410 Expired", "watch an old revision 410 Expired", "delete a collection 200", "rebuild 200"} {
		if w.answers[want] == 0 {
			t.Errorf("%q did not happen", want)
		}
	}
	// Each replica tries once in every interval, and the one that comes second leaves it.
	n, most := compactions(ctx, t, etcd)-compactedBefore, int64(time.Since(begin)/compaction)+2
	t.Logf("the replicas have compacted %d times in %s", n, time.Since(begin).Round(time.Millisecond))
	if n == 0 || n > most {
		t.Errorf("the replicas have compacted %d times, want 1 to %d", n, most)
	}
	mustListByIndex(ctx, t, c)
}

func seedJSON(t *testing.T, name string, i int) string {
	t.Helper()
	gadget := env.SeedGadget(namespace, i)
	gadget.SetName(name)
	data, err := gadget.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// compactions is how often API servers have agreed to compact.
func compactions(ctx context.Context, t *testing.T, etcd *clientv3.Client) int64 {
	t.Helper()
	got, err := etcd.Get(ctx, compactorKey)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return 0
	}
	return got.Kvs[0].Version
}

// compact drops all revisions but the latest, several times a second.
func compact(ctx context.Context, t *testing.T, etcd *clientv3.Client) {
	tick := time.NewTicker(compaction / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		latest, err := etcd.Get(ctx, compactorKey)
		if err == nil {
			_, err = etcd.Compact(ctx, latest.Header.Revision)
		}
		if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "has been compacted") {
			t.Errorf("compacting: %v", err)
		}
	}
}

// workers are the clients, and the answers that they got.
type workers struct {
	t    *testing.T
	c    *client
	work sync.WaitGroup

	lock    sync.Mutex
	answers map[string]int
}

// ask notes the answer, which must be a success or 410 Expired. It reports false once the time is over.
func (w *workers) ask(ctx context.Context, what, method, path, body string) (answer, bool) {
	response, err := w.c.begin(ctx, method, path, body)
	if ctx.Err() != nil {
		return answer{}, false
	}
	if err != nil {
		w.t.Errorf("%s: %v", what, err)
		return answer{}, false
	}
	defer response.Body.Close()
	got := answer{code: response.StatusCode}
	if got.body, err = io.ReadAll(response.Body); ctx.Err() != nil {
		return answer{}, false
	}
	_ = json.Unmarshal(got.body, &got.status) // of an object it takes nothing that matters
	w.note(ctx, what, got.code, got.status.Reason, got.body, err)
	return got, true
}

func (w *workers) note(_ context.Context, what string, code int, reason metav1.StatusReason, body []byte, err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.answers[strings.TrimSpace(fmt.Sprintf("%s %d %s", what, code, reason))]++
	if err != nil || code >= http.StatusBadRequest && (code != http.StatusGone || reason != metav1.StatusReasonExpired) {
		w.t.Errorf("%s: %d %.300s %v, want success or 410 Expired", what, code, body, err)
	}
}

// page goes through a list in pages, slowly, so that its revision is dropped meanwhile.
func (w *workers) page(ctx context.Context) {
	next := ""
	for ctx.Err() == nil {
		got, ok := w.ask(ctx, "page", http.MethodGet, gadgets+"?limit=7&continue="+next, "")
		if !ok {
			return
		}
		list := metav1.PartialObjectMetadataList{}
		if got.code == http.StatusOK && json.Unmarshal(got.body, &list) == nil {
			next = list.Continue
		} else {
			next = ""
		}
		pause(ctx, compaction/2)
	}
}

func pause(ctx context.Context, period time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(period):
	}
}

// list demands that lists through the index are complete whatever the index is at the time.
func (w *workers) list(ctx context.Context) {
	for ctx.Err() == nil {
		for _, version := range []string{"", "&resourceVersion=0"} {
			got, ok := w.ask(ctx, "list", http.MethodGet, gadgets+"?labelSelector=team%3Da"+version, "")
			if !ok {
				return
			}
			if n := bytes.Count(got.body, []byte(`"name":"stock-`)); n != stock/2 {
				w.t.Errorf("a list by a label holds %d objects of the stock, want %d", n, stock/2)
			}
		}
	}
}

// followLatest watches from the latest state on.
func (w *workers) followLatest(ctx context.Context) {
	for ctx.Err() == nil {
		w.follow(ctx, "watch", "")
	}
}

// followOld watches from the beginning of etcd, which is gone.
func (w *workers) followOld(ctx context.Context) {
	for ctx.Err() == nil {
		w.follow(ctx, "watch an old revision", "&resourceVersion="+strconv.Itoa(1<<50+1))
		pause(ctx, compaction/2)
	}
}

// follow is one watch of two seconds, whose only error may be 410 Expired.
func (w *workers) follow(ctx context.Context, what, query string) {
	response, err := w.c.begin(ctx, http.MethodGet, gadgets+"?watch=1&timeoutSeconds=2"+query, "")
	if err != nil {
		if ctx.Err() == nil {
			w.t.Errorf("%s: %v", what, err)
		}
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		status := metav1.Status{}
		_ = json.Unmarshal(body, &status)
		w.note(ctx, what, response.StatusCode, status.Reason, body, nil)
		return
	}
	decoder := json.NewDecoder(response.Body)
	for {
		event := struct {
			Type   watch.EventType
			Object json.RawMessage
		}{}
		if decoder.Decode(&event) != nil {
			w.note(ctx, what, http.StatusOK, "", nil, nil)
			return
		}
		if event.Type == watch.Error {
			status := metav1.Status{}
			_ = json.Unmarshal(event.Object, &status)
			w.note(ctx, what, int(status.Code), status.Reason, event.Object, nil)
			return
		}
	}
}

// write creates, changes and deletes objects of a team that nobody lists.
func (w *workers) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("passing-%d", time.Now().UnixNano())
		if _, ok := w.ask(ctx, "create", http.MethodPost, gadgets, passing(name, "passing")); !ok {
			return
		}
		w.ask(ctx, "update", http.MethodPatch, gadgets+"/"+name, fmt.Sprintf(`{"spec":{"size":%d}}`, i))
		w.ask(ctx, "delete", http.MethodDelete, gadgets+"/"+name, "")
	}
}

func passing(name, team string) string {
	return fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":%q,"labels":{"team":%q}},"spec":{"color":"red"}}`, name, team)
}

func (w *workers) deleteCollections(ctx context.Context) {
	for ctx.Err() == nil {
		for range 5 {
			if _, ok := w.ask(ctx, "create", http.MethodPost, gadgets, passing(fmt.Sprintf("swept-%d", time.Now().UnixNano()), "swept")); !ok {
				return
			}
		}
		w.ask(ctx, "delete a collection", http.MethodDelete, gadgets+"?labelSelector=team%3Dswept", "")
	}
}

// rebuild changes the declared indexes over and over.
func (w *workers) rebuild(ctx context.Context) {
	client, err := versioned.NewForConfig(replicaConfig(w.t, 0))
	if err != nil {
		w.t.Error(err)
		return
	}
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	for i := 0; ctx.Err() == nil; i++ {
		group, err := groups.Get(ctx, env.FixtureGroup, metav1.GetOptions{})
		if err == nil {
			group.Spec.Resources[0].IndexLabels = [][]string{{"team"}, {"team", "other"}, {"other"}}[i%3]
			_, err = groups.Update(ctx, group, metav1.UpdateOptions{})
		}
		if ctx.Err() != nil {
			return
		}
		w.note(ctx, "rebuild", http.StatusOK, "", nil, err)
		pause(ctx, compaction/2)
	}
}

// mustListByIndex declares the index for good, and waits until a list reads it: no rebuild has stuck.
func mustListByIndex(ctx context.Context, t *testing.T, c *client) {
	t.Helper()
	client, err := versioned.NewForConfig(replicaConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	group, err := groups.Get(ctx, env.FixtureGroup, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	group.Spec.Resources[0].IndexLabels = []string{"team", "settled"}
	if _, err := groups.Update(ctx, group, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range suite.annex.Replicas {
		replica := newClient(t, replicaConfig(t, i))
		review := fmt.Sprintf(`{"apiVersion":"kubeannex.io/v1alpha1","kind":"ListReview","spec":{"path":%q}}`, gadgets+"?labelSelector=settled%3Dyes")
		for {
			got := replica.must(ctx, t, http.MethodPost, "/apis/kubeannex.io/v1alpha1/listreviews", review)
			if bytes.Contains(got.body, []byte(`"l:settled"`)) || bytes.Contains(got.body, []byte(`settled"`)) && bytes.Contains(got.body, []byte(`"index":`)) {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("replica %d does not read the index: %s", i, got.body)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	c.must(ctx, t, http.MethodDelete, gadgets, "")
}
