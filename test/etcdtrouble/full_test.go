// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtrouble

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeannex/annex/pkg/etcd/space/spacetest"
)

// TestFullEtcd fills annex's etcd (etcd-io/etcd 14595, kubernetes/kubernetes 94029). Every answer is the one of
// a kube-apiserver whose own etcd is full: reads and watches go on, deletions that need no other write
// succeed, other writes fail at once. The cluster does not notice. When an operator has made room, writes
// succeed again without a restart.
func TestFullEtcd(t *testing.T) {
	ctx := testContext(t)
	annex, judge := newClient(t, clusterConfig(t, suite.host)), newClient(t, clusterConfig(t, suite.judge))
	for _, c := range []*client{annex, judge} {
		prepareFull(ctx, t, c)
	}
	watched := startWatch(ctx, t, newClient(t, replicaConfig(t, 0)), annex.must(ctx, t, http.MethodGet, gadgets, ""))
	annexEtcd, judgeEtcd := etcdClient(t, suite.annex.Etcd), etcdClient(t, suite.judge.Etcd)
	for _, etcd := range []*clientv3.Client{annexEtcd, judgeEtcd} {
		spacetest.Write(t, etcd, func(i int) string { return fmt.Sprint(i) })
	}

	if diff := cmp.Diff(askFull(ctx, t, judge), askFull(ctx, t, annex)); diff != "" {
		t.Errorf("answers of a full etcd (-kube-apiserver +annex):\n%s", diff)
	}
	watched.mustSee(t, watch.Deleted, "plain")
	mustExplain(ctx, t)
	annex.must(ctx, t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"generateName":"others-"}}`)
	t.Run("a replica starts", func(t *testing.T) { mustStartFull(ctx, t) })

	for _, etcd := range []*clientv3.Client{annexEtcd, judgeEtcd} {
		makeRoom(ctx, t, etcd)
	}
	for _, c := range []*client{annex, judge} {
		c.must(ctx, t, http.MethodPost, gadgets, gadgetJSON("after", ""))
	}
	watched.mustSee(t, watch.Added, "after")
	waitFullMetric(ctx, t, 1, "0")
	for _, c := range []*client{annex, judge} {
		c.must(ctx, t, http.MethodPatch, gadgets+"/held", `{"metadata":{"finalizers":null}}`)
		c.must(ctx, t, http.MethodDelete, gadgets, "")
	}
}

func gadgetJSON(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":%q,"labels":{"team":"a"}%s},"spec":{"color":"red"}}`, name, more)
}

// prepareFull creates what is asked for when etcd is full.
func prepareFull(ctx context.Context, t *testing.T, c *client) {
	t.Helper()
	for _, name := range []string{"kept", "plain", "many-1", "many-2"} {
		c.must(ctx, t, http.MethodPost, gadgets, gadgetJSON(name, ""))
	}
	c.must(ctx, t, http.MethodPost, gadgets, gadgetJSON("held", `,"finalizers":["lab.annex.test/held"]`))
	c.must(ctx, t, http.MethodPatch, gadgets+"/many-1", `{"metadata":{"labels":{"many":"yes"}}}`)
	c.must(ctx, t, http.MethodPatch, gadgets+"/many-2", `{"metadata":{"labels":{"many":"yes"}}}`)
}

// askFull asks for everything that a client may want of a full etcd. It returns code, reason and message of every answer.
func askFull(ctx context.Context, t *testing.T, c *client) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for _, request := range []struct{ name, method, path, body string }{
		{"get", http.MethodGet, gadgets + "/kept", ""},
		{"list from the cache", http.MethodGet, gadgets + "?resourceVersion=0", ""},
		{"list the latest", http.MethodGet, gadgets, ""},
		{"list a page", http.MethodGet, gadgets + "?limit=2", ""},
		{"list by a field", http.MethodGet, gadgets + "?fieldSelector=spec.color%3Dred", ""},
		{"create", http.MethodPost, gadgets, gadgetJSON("new", "")},
		{"update", http.MethodPatch, gadgets + "/kept", `{"spec":{"size":7}}`},
		{"update nothing", http.MethodPatch, gadgets + "/kept", `{}`},
		{"update the status", http.MethodPatch, gadgets + "/kept/status", `{"status":{"size":7}}`},
		{"delete what has a finalizer", http.MethodDelete, gadgets + "/held", ""},
		{"delete", http.MethodDelete, gadgets + "/plain", ""},
		{"delete a collection", http.MethodDelete, gadgets + "?labelSelector=many%3Dyes", ""},
		{"list what is left", http.MethodGet, gadgets, ""},
	} {
		got := c.ask(ctx, t, request.method, request.path, request.body)
		answers[request.name] = fmt.Sprintf("%d %s %s", got.code, got.status.Reason, got.status.Message)
		if request.method == http.MethodGet {
			answers[request.name] += fmt.Sprint(namesOf(got))
		}
	}
	if !strings.Contains(answers["create"], "database space exceeded") || !strings.HasPrefix(answers["delete"], "200") || !strings.HasPrefix(answers["delete a collection"], "200") {
		t.Errorf("%s: the etcd is not full, or nothing can be deleted: %v", c.host, answers)
	}
	return answers
}

// namesOf are the names in a list, or of an object.
func namesOf(got answer) (names []string) {
	list := metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(got.body, &list); err != nil {
		return []string{err.Error()}
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// mustExplain asks for a review, which writes nothing.
func mustExplain(ctx context.Context, t *testing.T) {
	t.Helper()
	review := fmt.Sprintf(`{"apiVersion":"kubeannex.io/v1alpha1","kind":"ListReview","spec":{"path":%q}}`, gadgets)
	newClient(t, replicaConfig(t, 0)).must(ctx, t, http.MethodPost, "/apis/kubeannex.io/v1alpha1/listreviews", review)
}

// mustStartFull restarts a replica while etcd is full. It serves reads, and says what the matter is.
func mustStartFull(ctx context.Context, t *testing.T) {
	server := suite.annex.Replicas[1]
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := waitOpen(ctx); err != nil {
		t.Fatal(err)
	}
	if got := namesOf(newClient(t, replicaConfig(t, 1)).must(ctx, t, http.MethodGet, gadgets, "")); len(got) == 0 {
		t.Error("a replica that was started on a full etcd lists nothing")
	}
	if !strings.Contains(server.Log(), "Etcd is full") {
		t.Errorf("the log does not say that etcd is full:\n%s", server.Tail(20))
	}
	waitFullMetric(ctx, t, 1, "1")
}

// waitFullMetric waits until a replica says whether etcd is full.
func waitFullMetric(ctx context.Context, t *testing.T, replica int, value string) {
	t.Helper()
	c := newClient(t, replicaConfig(t, replica))
	want := fmt.Sprintf("annex_etcd_full{servers=%q} %s\n", suite.annex.Etcd.URL, value)
	for {
		got := c.must(ctx, t, http.MethodGet, "/metrics", "")
		if strings.Contains(string(got.body), want) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the metrics do not hold %q", want)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// makeRoom is what an operator does.
func makeRoom(ctx context.Context, t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	deleted, err := etcd.Delete(ctx, spacetest.Prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(ctx, deleted.Header.GetRevision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Defragment(ctx, etcd.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
}

// watched is a watch at a replica that is not restarted.
type watched struct{ events chan string }

func startWatch(ctx context.Context, t *testing.T, c *client, from answer) *watched {
	t.Helper()
	list := metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(from.body, &list); err != nil {
		t.Fatal(err)
	}
	response, err := c.begin(ctx, http.MethodGet, gadgets+"?watch=1&resourceVersion="+list.ResourceVersion, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	w := &watched{events: make(chan string, 1000)}
	go func() {
		defer close(w.events)
		decoder := json.NewDecoder(response.Body)
		for {
			event := struct {
				Type   watch.EventType
				Object metav1.PartialObjectMetadata
			}{}
			if decoder.Decode(&event) != nil {
				return
			}
			w.events <- string(event.Type) + " " + event.Object.Name
		}
	}()
	return w
}

// mustSee waits for an event of the one watch.
func (w *watched) mustSee(t *testing.T, eventType watch.EventType, name string) {
	t.Helper()
	timeout := time.After(atOnce)
	for {
		select {
		case event, ok := <-w.events:
			if !ok {
				t.Fatalf("the watch ended before %s %s", eventType, name)
			}
			if event == string(eventType)+" "+name {
				return
			}
		case <-timeout:
			t.Fatalf("the watch has not seen %s %s", eventType, name)
		}
	}
}
