// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapis

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

const policies = "mutatingadmissionpolicies"

// cluster answers discovery and lists in the versions of admissionregistration.k8s.io that
// it serves. Its watches have no events.
type cluster struct {
	client kubernetes.Interface

	mu sync.Mutex
	// served are resources by version. Answered, when set, is what every request gets.
	served   map[string][]string
	answered func(http.ResponseWriter)
	// ended is closed to end the watches.
	ended chan struct{}
}

func newCluster(t *testing.T, served map[string][]string) *cluster {
	t.Helper()
	c := &cluster{served: served, ended: make(chan struct{})}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Cleanup(func() { c.serve(nil) })
	var err error
	if c.client, err = kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

// serve changes what is served, and ends the watches of what was.
func (c *cluster) serve(served map[string][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = served
	close(c.ended)
	c.ended = make(chan struct{})
}

func (c *cluster) answer(answered func(http.ResponseWriter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = answered
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	c.mu.Lock()
	answered, served, ended := c.answered, c.served, c.ended
	c.mu.Unlock()
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/") // apis, group, version, resource
	switch {
	case answered != nil:
		answered(w)
	case len(parts) == 1:
		groups := metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "apps"}, {Name: "admissionregistration.k8s.io"}}}
		for version := range served {
			groups.Groups[1].Versions = append(groups.Groups[1].Versions, metav1.GroupVersionForDiscovery{Version: version})
		}
		reply(w, http.StatusOK, groups)
	case len(parts) == 3 && served[parts[2]] != nil:
		resources := metav1.APIResourceList{}
		for _, resource := range served[parts[2]] {
			resources.APIResources = append(resources.APIResources, metav1.APIResource{Name: resource})
		}
		reply(w, http.StatusOK, resources)
	case len(parts) == 4 && cmp.Equal(served[parts[2]], []string{parts[3]}) && request.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		select {
		case <-ended:
		case <-request.Context().Done():
		}
	case len(parts) == 4 && cmp.Equal(served[parts[2]], []string{parts[3]}):
		reply(w, http.StatusOK, map[string]any{
			"apiVersion": parts[1] + "/" + parts[2], "kind": "MutatingAdmissionPolicyList", "metadata": map[string]any{"resourceVersion": "7"},
			"items": []any{map[string]any{"metadata": map[string]any{"name": "of-" + parts[2]}, "spec": map[string]any{"failurePolicy": "Fail"}}},
		})
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func TestList(t *testing.T) {
	for name, tc := range map[string]struct {
		served   map[string][]string
		answered func(http.ResponseWriter)
		want     []string
		wantErr  bool
		lacks    bool
	}{
		"a cluster of today": {
			served: map[string][]string{"v1": {policies}, "v1beta1": {policies}}, want: []string{"of-v1"},
		},
		"an older cluster with the beta version": {
			served: map[string][]string{"v1": {"validatingadmissionpolicies"}, "v1beta1": {policies}}, want: []string{"of-v1beta1"},
		},
		"an older cluster without it":          {served: map[string][]string{"v1": {"validatingadmissionpolicies"}}, lacks: true},
		"a cluster without the whole version":  {served: map[string][]string{"v2": {policies}}, lacks: true},
		"a cluster with no version at all":     {served: map[string][]string{}, lacks: true},
		"a proxy that does not know a cluster": {answered: func(w http.ResponseWriter) { http.Error(w, "no such site", http.StatusNotFound) }, wantErr: true},
		"a cluster that is not ready":          {answered: func(w http.ResponseWriter) { http.Error(w, "later", http.StatusServiceUnavailable) }, wantErr: true},
		"a cluster that refuses":               {answered: func(w http.ResponseWriter) { http.Error(w, "no", http.StatusForbidden) }, wantErr: true},
		"a proxy that answers anything": {answered: func(w http.ResponseWriter) {
			reply(w, http.StatusNotFound, metav1.APIGroupList{})
		}, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, tc.served)
			cluster.answer(tc.answered)
			availability := NewAvailability()
			source := &source{kind: mutatingPolicies()[0], client: cluster.client, availability: availability}
			list, err := source.list(t.Context(), metav1.ListOptions{})
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %t", err, tc.wantErr)
			}
			if availability.Lacks(MutatingAdmissionPolicy) != tc.lacks {
				t.Errorf("disabled: %v, want it: %t", availability.Disabled(), tc.lacks)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tc.want, namesOf(t, list)); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUpgrade follows a cluster that learns the API in two steps and loses it again.
func TestUpgrade(t *testing.T) {
	cluster := newCluster(t, map[string][]string{"v1": {"validatingadmissionpolicies"}})
	availability := NewAvailability()
	factory := informers.NewSharedInformerFactory(cluster.client, 0)
	kind := mutatingPolicies()[0]
	informer := factory.InformerFor(kind.object, newInformer(availability, kind, time.Millisecond))
	if factory.Admissionregistration().V1().MutatingAdmissionPolicies().Informer().HasSynced() {
		t.Fatal("synced before it runs")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory.StartWithContext(ctx)
	<-informer.HasSyncedChecker().Done()
	if !availability.Lacks(MutatingAdmissionPolicy) {
		t.Error("the plug-in is not disabled")
	}
	lister := factory.Admissionregistration().V1().MutatingAdmissionPolicies().Lister()
	expect := func(step string, lacks bool, name string) {
		t.Helper()
		err := wait.PollUntilContextTimeout(ctx, time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
			_, missing := lister.Get(name)
			return availability.Lacks(MutatingAdmissionPolicy) == lacks && (name == "" || missing == nil), nil
		})
		if err != nil {
			t.Errorf("%s: %v, disabled %v", step, err, availability.Disabled())
		}
	}
	cluster.serve(map[string][]string{"v1beta1": {policies}})
	expect("served in beta", false, "of-v1beta1")
	cluster.serve(map[string][]string{"v1": {policies}})
	expect("served", false, "of-v1")
	cluster.serve(map[string][]string{"v1": {"validatingadmissionpolicies"}})
	expect("served no more", true, "")
	// The plug-in is known to be off a moment before the informer has taken the empty list.
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		_, missing := lister.Get("of-v1")
		return missing != nil, nil
	})
	if err != nil {
		t.Error("a policy is obeyed whose API is gone")
	}
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		stream := expire(t.Context(), time.Minute)
		event := <-stream.ResultChan()
		status, ok := event.Object.(*metav1.Status)
		if event.Type != watch.Error || !ok || status.Code != http.StatusGone || time.Since(begin) != time.Minute {
			t.Errorf("%v after %s, want code 410 after a minute", event, time.Since(begin))
		}
		stream = expire(t.Context(), time.Minute)
		stream.Stop()
		stream.Stop()
		if event, open := <-stream.ResultChan(); open {
			t.Errorf("a stopped watch sent %v", event)
		}
	})
}

func TestMetric(t *testing.T) {
	availability := NewAvailability()
	registry := metrics.NewKubeRegistry()
	if err := availability.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	cluster := newCluster(t, map[string][]string{})
	for _, kind := range mutatingPolicies() {
		source := &source{kind: kind, client: cluster.client, availability: availability}
		if _, err := source.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := "# HELP annex_disabled_plugins [ALPHA] " + DisabledHelp + "\n# TYPE annex_disabled_plugins gauge\n" +
		"annex_disabled_plugins{plugin=\"MutatingAdmissionPolicy\",reason=\"MissingAPI\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), DisabledName); err != nil {
		t.Error(err)
	}
	if got := len(availability.Disabled()[0].Resources); got != 2 {
		t.Errorf("%d resources are missing, want 2", got)
	}
}

func namesOf(t *testing.T, list runtime.Object) []string {
	t.Helper()
	var names []string
	err := meta.EachListItem(list, func(object runtime.Object) error {
		policy, ok := object.(*admissionregistrationv1.MutatingAdmissionPolicy)
		if !ok {
			t.Fatalf("the list holds a %T", object)
		}
		if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s has lost its failure policy: %v", policy.Name, policy.Spec)
		}
		names = append(names, policy.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
