// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// red is how many of the gadgets are red.
func red() int64 {
	var n int64
	for i := range gadgets {
		if gadget := env.SeedGadget("t", i); gadget.Object["spec"].(map[string]any)["color"] == "red" {
			n++
		}
	}
	return n
}

func TestReads(t *testing.T) {
	w := startWorld(t)
	const cache, etcd = v1alpha1.ListSourceCache, v1alpha1.ListSourceEtcd
	numbers := func(source, rule, scanned, returned string) map[string]string {
		return map[string]string{"source": source, "rule": rule, "scanned": scanned, "returned": returned}
	}
	byColor := numbers("Cache", "Latest", fmt.Sprint(red()), fmt.Sprint(red()))
	byColor["index"] = "f:spec.color"
	tests := map[string]struct {
		path     string
		wantCode int
		// Of want the identity of the client and the resource are the same everywhere, the bytes are those that came.
		want v1alpha1.ListProfileRow
		// wantAudit are the annotations without their domain.
		wantAudit map[string]string
	}{
		"list-by-index": {
			path:      collection + "?fieldSelector=spec.color%3Dred",
			want:      v1alpha1.ListProfileRow{Verb: "list", Selector: "namespace,spec.color=", Source: cache, Index: "f:spec.color", Scanned: red(), Returned: red()},
			wantAudit: byColor,
		},
		"list-without-index": {
			path:      everywhere + "?labelSelector=team%3Da&resourceVersion=0",
			want:      v1alpha1.ListProfileRow{Verb: "list", Selector: "team=", Source: cache, Scanned: gadgets, Returned: gadgets / 2},
			wantAudit: numbers("Cache", "Any", "100", "50"),
		},
		"list-a-page": {
			path:      collection + "?limit=10",
			want:      v1alpha1.ListProfileRow{Verb: "list", Selector: "namespace", Source: cache, Scanned: 10, Returned: 10},
			wantAudit: numbers("Cache", "Latest", "10", "10"),
		},
		"get": {
			path:      collection + "/g-00007",
			want:      v1alpha1.ListProfileRow{Verb: "get", Selector: "namespace,name", Source: etcd, Scanned: 1, Returned: 1},
			wantAudit: numbers("Etcd", "GetLatest", "1", "1"),
		},
		"watch": {
			path:      collection + "?watch=1&timeoutSeconds=1&fieldSelector=spec.color%3Dred",
			want:      v1alpha1.ListProfileRow{Verb: "watch", Selector: "namespace,spec.color=", Source: cache, Index: "f:spec.color"},
			wantAudit: map[string]string{"source": "Cache", "rule": "Watch", "index": "f:spec.color"},
		},
		"malformed": {
			path: collection + "?labelSelector=team%3D(", wantCode: http.StatusBadRequest,
			want: v1alpha1.ListProfileRow{Verb: "list", Selector: "namespace,<malformed labels>", Failed: 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := w.client(t, name, "reader/v1.2 (linux/amd64) node-17")
			answer := w.get(t, client, tc.path)
			if answer.Code != max(tc.wantCode, http.StatusOK) {
				t.Fatalf("got code %d: %s", answer.Code, answer.Body)
			}
			want := tc.want
			want.Client, want.ClientVersion, want.User, want.Group, want.Version, want.Resource = "reader", "v1.2", name, env.FixtureGroup, "v1", "gadgets"
			want.Count, want.Bytes = 1, int64(len(answer.Body))
			got := w.rows(t, name)
			for i := range got {
				if age := time.Since(got[i].LastSeen.Time); age < 0 || age > patience {
					t.Errorf("last seen %v ago", age)
				}
				got[i].LastSeen = metav1.Time{}
			}
			if diff := cmp.Diff([]v1alpha1.ListProfileRow{want}, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			w.checkAudit(t, name, tc.want.Verb == "watch", tc.wantAudit)
		})
	}
	w.checkMetrics(t)
}

// checkAudit looks for the annotations in the last event of the request, and for a watch in the one of its start too.
func (w world) checkAudit(t *testing.T, user string, isWatch bool, want map[string]string) {
	t.Helper()
	stages := map[auditv1.Stage]bool{auditv1.StageResponseComplete: true}
	if isWatch {
		stages[auditv1.StageResponseStarted] = true
	}
	if want == nil {
		want = map[string]string{}
	}
	seen := 0
	for _, event := range events(t, w.auditLog, user, len(stages)+1) {
		if !stages[event.Stage] {
			continue
		}
		seen++
		if diff := cmp.Diff(want, own(&event)); diff != "" {
			t.Errorf("annotations at stage %s (-want +got):\n%s", event.Stage, diff)
		}
	}
	if seen != len(stages) {
		t.Errorf("got %d events, want %d", seen, len(stages))
	}
}

// checkMetrics looks at what the requests of TestReads have added up to.
func (w world) checkMetrics(t *testing.T) {
	t.Helper()
	group := func(more labels.Set) labels.Set { return labels.Merge(labels.Set{"group": env.FixtureGroup}, more) }
	for name, tc := range map[string]struct {
		metric string
		labels labels.Set
		want   float64
	}{
		"reads by an index":        {"annex_reads_total", group(labels.Set{"verb": "list", "source": "Cache", "rule": "Latest", "index": "f:spec.color"}), 1},
		"watches":                  {"annex_reads_total", group(labels.Set{"verb": "watch", "rule": "Watch", "index": "f:spec.color"}), 1},
		"refused":                  {"annex_reads_total", group(labels.Set{"verb": "list", "source": "", "rule": ""}), 1},
		"failed":                   {"annex_reads_failed_total", group(labels.Set{"verb": "list", "source": ""}), 1},
		"scanned without an index": {"annex_read_scanned_objects_total", group(labels.Set{"verb": "list", "index": ""}), gadgets + 10},
		"returned":                 {"annex_read_returned_objects_total", group(labels.Set{"verb": "list"}), gadgets/2 + 10 + float64(red())},
		"rows":                     {"annex_list_profile_rows", labels.Set{}, 6},
		"dropped rows":             {"annex_list_profile_dropped_total", labels.Set{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.metric(t, tc.metric, tc.labels); got != tc.want {
				t.Errorf("%s of %v: got %v, want %v", tc.metric, tc.labels, got, tc.want)
			}
		})
	}
	if w.metric(t, "annex_read_response_bytes_total", group(labels.Set{"verb": "list"})) < 50*100 {
		t.Error("the bytes of lists are not counted")
	}
}

func TestWhatIsNoRead(t *testing.T) {
	w := startWorld(t)
	client := w.client(t, "nobody", "reader/v1")
	for _, path := range []string{
		"/apis/lab.annex.test/v1/nothings", "/apis/lab.annex.test/v9/gadgets", "/apis/none.annex.test/v1/gadgets",
		"/apis/kubeannex.io/v1alpha1/annexedgroups", "/apis/kubeannex.io/v1alpha1/listprofiles",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/lab.annex.test/v1", "/version",
	} {
		w.get(t, client, path)
	}
	w.ServeNow(t, v1alpha1.ServingClosed)
	if answer := w.get(t, client, collection); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("a closed group: got code %d", answer.Code)
	}
	list, err := w.annex.KubeannexV1alpha1().ListProfiles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 0 {
		t.Errorf("got rows %+v", list.Items)
	}
	if list.Replica == "" || list.Since.IsZero() || list.Dropped != 0 {
		t.Errorf("got replica %q, since %v, dropped %d", list.Replica, list.Since, list.Dropped)
	}
}

func TestARunningWatch(t *testing.T) {
	w := startWorld(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL(collection+"?watch=1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := w.client(t, "watcher", "reader/v1").Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	// Its header has come, and it goes on.
	rows := w.rows(t, "watcher")
	if len(rows) != 1 || rows[0].Count != 1 {
		t.Fatalf("got rows %+v", rows)
	}
	before := rows[0].Bytes
	created := env.Gadget("t", "new", nil)
	if _, err := w.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).Namespace("t").Create(t.Context(), created, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the bytes of the event", func() bool { return w.rows(t, "watcher")[0].Bytes > before })
}

// TestTheWorstClientIsNamed checks what a user does who looks for it.
func TestTheWorstClientIsNamed(t *testing.T) {
	w := startWorld(t)
	for range 3 {
		w.get(t, w.client(t, "greedy", "greedy/v7 (linux/amd64)"), everywhere+"?labelSelector=team%3Dnone")
	}
	w.get(t, w.client(t, "modest", "modest/v1"), collection+"?limit=1")
	config := w.Config(t, adopted.Somebody)
	config.AcceptContentTypes = "application/json;as=Table;v=v1;g=meta.k8s.io"
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := client.KubeannexV1alpha1().RESTClient().Get().Resource("listprofiles").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 2 {
		t.Fatalf("got %d rows: %s", len(table.Rows), body)
	}
	want := []any{"greedy", "greedy", "list", "gadgets.lab.annex.test", "team=", "Cache", 3.0, 300.0, 0.0}
	if diff := cmp.Diff(want, table.Rows[0].Cells[:len(want)]); diff != "" {
		t.Errorf("the worst (-want +got):\n%s", diff)
	}
	name := table.Rows[0].Cells[15].(string)
	profile, err := w.annex.KubeannexV1alpha1().ListProfiles().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if profile.Profile.User != "greedy" || profile.Profile.Scanned != 300 || profile.CreationTimestamp.IsZero() {
		t.Errorf("got %+v", profile)
	}
}

// TestADeletedDefinitionIsForgotten checks that resources which come and go leave nothing.
func TestADeletedDefinitionIsForgotten(t *testing.T) {
	w := startWorld(t)
	w.get(t, w.client(t, "reader", "reader/v1"), collection)
	series := labels.Set{"group": env.FixtureGroup, "resource": "gadgets"}
	if rows, reads := w.rows(t, "reader"), w.metric(t, "annex_reads_total", series); len(rows) != 1 || reads != 1 {
		t.Fatalf("got rows %+v and %v reads", rows, reads)
	}
	definitions := w.Dynamic(t, adopted.Controller).Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	if err := definitions.Delete(t.Context(), "gadgets."+env.FixtureGroup, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the row and the series to go", func() bool {
		return len(w.rows(t, "reader")) == 0 && w.metric(t, "annex_reads_total", series) == 0
	})
}

// TestAlone checks that a server without a gate keeps account too, but not of its own requests.
func TestAlone(t *testing.T) {
	server := testserver.StartStandalone(t)
	if err := env.InstallGadgets(t.Context(), server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "alice"} {
		config := *server.ClientConfig
		if user != "" {
			config.Impersonate.UserName, config.Impersonate.Groups = user, []string{"system:masters"}
		}
		client, err := versioned.NewForConfig(&config)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.KubeannexV1alpha1().RESTClient().Get().AbsPath(everywhere).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	client, err := versioned.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.KubeannexV1alpha1().ListProfiles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Profile.User != "alice" {
		t.Errorf("got %+v, want one row, of alice", list.Items)
	}
}
