// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// fakeServer keeps objects by their paths, and answers as an API server does.
type fakeServer struct {
	*httptest.Server
	// refuse is a path that is refused.
	refuse string

	mu       sync.Mutex
	objects  map[string]map[string]any
	queries  map[string]int
	requests int
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	server := &fakeServer{objects: map[string]map[string]any{}, queries: map[string]int{}}
	server.Server = httptest.NewServer(http.HandlerFunc(server.create))
	t.Cleanup(server.Close)
	return server
}

func (s *fakeServer) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, fmt.Sprintf("%s: %v", r.Method, err), http.StatusBadRequest)
		return
	}
	var object struct{ Metadata struct{ Name string } }
	var whole map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.queries[r.Header.Get("Content-Type")+" "+r.URL.RawQuery]++
	at := path.Join(r.URL.Path, object.Metadata.Name)
	resource := schema.GroupResource{Resource: path.Base(r.URL.Path)}
	switch {
	case at == s.refuse:
		answer(w, apierrors.NewForbidden(resource, object.Metadata.Name, nil))
	case s.objects[at] != nil:
		answer(w, apierrors.NewAlreadyExists(resource, object.Metadata.Name))
	default:
		s.objects[at] = whole
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		w.Write(body) //nolint:errcheck // the client fails then
	}
}

func answer(w http.ResponseWriter, status *apierrors.StatusError) {
	status.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.ErrStatus.Code))
	json.NewEncoder(w).Encode(status.ErrStatus) //nolint:errcheck // the client fails then
}

func TestFill(t *testing.T) {
	const count = 250
	server := newFakeServer(t)
	var got []int
	fill := func() {
		got = nil
		err := shape().Fill(t.Context(), &rest.Config{Host: server.URL}, AnnexedGroup, Endpoints, count, func(done, all int) {
			if all != count {
				t.Errorf("progress of %d objects, want %d", all, count)
			}
			got = append(got, done)
		})
		if err != nil {
			t.Fatalf("Fill: %v", err)
		}
	}
	fill()
	want := map[string]map[string]any{}
	for i := range count {
		object := shape().Object(AnnexedGroup, Endpoints, i)
		at := CollectionPath(AnnexedGroup, Version, Endpoints, object.GetNamespace()) + "/" + object.GetName()
		body, err := object.MarshalJSON()
		if err != nil {
			t.Fatalf("MarshalJSON: %v", err)
		}
		var decoded map[string]any
		if err := json.Unmarshal(body, &decoded); err != nil {
			t.Fatalf("Unmarshal: %v", err)
		}
		want[at] = decoded
	}
	if diff := cmp.Diff(want, server.objects); diff != "" {
		t.Errorf("unexpected objects, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"application/json fieldManager=endpoint-agent": count}, server.queries); diff != "" {
		t.Errorf("unexpected requests, -want +got:\n%s", diff)
	}
	if len(got) != count/2 || got[0] != 2 || got[len(got)-1] != count {
		t.Errorf("unexpected progress %v", got)
	}
	fill()
	if server.requests != 2*count || len(server.objects) != count {
		t.Errorf("%d requests made %d objects the second time, want %d and %d", server.requests, len(server.objects), 2*count, count)
	}
	if err := shape().Fill(t.Context(), &rest.Config{Host: server.URL}, AnnexedGroup, Endpoints, 3, nil); err != nil {
		t.Errorf("filling without progress: %v", err)
	}
}

func TestFillFails(t *testing.T) {
	server := newFakeServer(t)
	server.refuse = "/apis/host.bench.annex.test/v1/namespaces/bench-03/reports/report-0000003"
	err := shape().Fill(t.Context(), &rest.Config{Host: server.URL}, HostGroup, Reports, 5, nil)
	want := `creating report-0000003: reports "report-0000003" is forbidden`
	if err == nil || !strings.HasPrefix(err.Error(), want) || !apierrors.IsForbidden(err) {
		t.Errorf("got the error %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := shape().Fill(ctx, &rest.Config{Host: server.URL}, HostGroup, Endpoints, 5, nil); err == nil {
		t.Errorf("no error after the end of the context")
	}
}

func TestCreateNamespaces(t *testing.T) {
	server := newFakeServer(t)
	for range 2 {
		if err := shape().CreateNamespaces(t.Context(), &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}); err != nil {
			t.Fatalf("CreateNamespaces: %v", err)
		}
	}
	var got, want []string
	for n := range shape().Namespaces {
		want = append(want, "/api/v1/namespaces/"+NamespaceName(n))
	}
	for at := range server.objects {
		got = append(got, at)
	}
	if diff := cmp.Diff(asSet(want), asSet(got)); diff != "" {
		t.Errorf("unexpected namespaces, -want +got:\n%s", diff)
	}
}

func asSet(values []string) map[string]bool {
	set := map[string]bool{}
	for _, value := range values {
		set[value] = true
	}
	return set
}

func TestUnlimited(t *testing.T) {
	config := &rest.Config{Host: "https://example.test", QPS: 5, Burst: 10}
	got := Unlimited(config)
	if got.QPS != -1 || got.Host != config.Host || config.QPS != 5 {
		t.Errorf("got QPS %v of %s, and the original has %v", got.QPS, got.Host, config.QPS)
	}
}

func BenchmarkJSON(b *testing.B) {
	for _, kind := range Kinds() {
		b.Run(kind.String(), func(b *testing.B) {
			for i := range b.N {
				if _, err := shape().JSON(HostGroup, kind, i); err != nil {
					b.Fatalf("JSON: %v", err)
				}
			}
		})
	}
}
