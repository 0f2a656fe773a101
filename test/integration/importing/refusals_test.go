// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/apiserver/importing"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// big is an object of some size.
func big(name string, size int) *unstructured.Unstructured {
	object := gadget(name, 1)
	object.SetAnnotations(map[string]string{"filler": strings.Repeat("x", size)})
	return object
}

func TestRefusals(t *testing.T) {
	world := adopted.Start(t)
	one := func(object *unstructured.Unstructured) func(*testing.T) io.Reader {
		return func(t *testing.T) io.Reader { return adopted.Stream(t, watch.Added, gadget("before", 1), object) }
	}
	other := gadget("other", 1)
	other.SetAPIVersion("lab.annex.test/v1beta1")
	tests := map[string]struct {
		user, method, path string
		body               func(*testing.T) io.Reader
		mode               v1alpha1.ServingMode
		wantCode           int
		wantReason         metav1.StatusReason
		wantMessage        []string
	}{
		"another user": {user: adopted.Somebody, body: one(gadget("a", 1)), wantCode: 403, wantReason: metav1.StatusReasonForbidden,
			wantMessage: []string{"--controller-user"}},
		"another user drops": {user: adopted.Somebody, method: http.MethodDelete, wantCode: 403, wantReason: metav1.StatusReasonForbidden},
		"an unknown resource": {path: "import?resource=gizmos", body: one(gadget("a", 1)), wantCode: 404, wantReason: metav1.StatusReasonNotFound,
			wantMessage: []string{"gizmos.lab.annex.test"}},
		"a drop of an unknown resource":   {method: http.MethodDelete, path: "import?resource=gizmos", wantCode: 404, wantReason: metav1.StatusReasonNotFound},
		"a digest of an unknown resource": {method: http.MethodGet, path: "digest?resource=gizmos", wantCode: 404, wantReason: metav1.StatusReasonNotFound},
		"no resource":                     {path: "import", body: one(gadget("a", 1)), wantCode: 400, wantReason: metav1.StatusReasonBadRequest},
		"no resource to digest":           {method: http.MethodGet, path: "digest", wantCode: 400, wantReason: metav1.StatusReasonBadRequest},
		"a dry run":                       {path: "import?resource=gadgets&dryRun=All", body: one(gadget("a", 1)), wantCode: 400, wantReason: metav1.StatusReasonBadRequest},
		"another version":                 {body: one(other), wantCode: 422, wantReason: metav1.StatusReasonInvalid, wantMessage: []string{"t/other", "v1beta1"}},
		"more than etcd takes": {body: one(big("heavy", 1600<<10)), wantCode: 413, wantReason: metav1.StatusReasonRequestEntityTooLarge,
			wantMessage: []string{"t/heavy", "larger than etcd takes"}},
		"more than the client of etcd takes": {body: one(big("heavier", 3<<20)), wantCode: 413, wantReason: metav1.StatusReasonRequestEntityTooLarge,
			wantMessage: []string{"t/heavier"}},
		"more than an import takes": {body: one(big("heaviest", importing.MaxObjectBytes)), wantCode: 413, wantReason: metav1.StatusReasonRequestEntityTooLarge,
			wantMessage: []string{"t/heaviest"}},
		"a cut stream": {body: func(t *testing.T) io.Reader {
			content := adopted.Stream(t, watch.Added, gadget("whole", 1), gadget("half", 1)).Bytes()
			return strings.NewReader(string(content[:len(content)-20]))
		}, wantCode: 400, wantReason: metav1.StatusReasonBadRequest, wantMessage: []string{"t/whole", "ends in the middle"}},
		"an open group": {body: one(gadget("a", 1)), mode: v1alpha1.ServingOpen, wantCode: 409, wantReason: metav1.StatusReasonConflict,
			wantMessage: []string{"Closed", "not Open"}},
		"a fenced group":   {body: one(gadget("a", 1)), mode: v1alpha1.ServingReadOnly, wantCode: 409, wantReason: metav1.StatusReasonConflict},
		"a released group": {body: one(gadget("a", 1)), mode: v1alpha1.ServingReleased, wantCode: 409, wantReason: metav1.StatusReasonConflict},
		"a drop of an open group": {method: http.MethodDelete, path: "import", mode: v1alpha1.ServingOpen, wantCode: 409, wantReason: metav1.StatusReasonConflict,
			wantMessage: []string{"Closed or Released"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.mode != "" {
				world.ServeNow(t, tc.mode)
				defer world.ServeNow(t, v1alpha1.ServingClosed)
			}
			user, method, path, body := adopted.Controller, http.MethodPost, "import?resource=gadgets", io.Reader(nil)
			if tc.user != "" {
				user = tc.user
			}
			if tc.method != "" {
				method = tc.method
			}
			if tc.path != "" {
				path = tc.path
			}
			if tc.body != nil {
				body = tc.body(t)
			}
			answer := world.Subresource(t, user, method, path, body)
			status := answer.Status(t)
			if answer.Code != tc.wantCode || status.Reason != tc.wantReason {
				t.Errorf("got code %d and reason %q, want %d and %q: %s", answer.Code, status.Reason, tc.wantCode, tc.wantReason, status.Message)
			}
			for _, want := range tc.wantMessage {
				if !strings.Contains(status.Message, want) {
					t.Errorf("%q does not say %q", status.Message, want)
				}
			}
		})
	}
}

func TestGroupThatIsNotAdopted(t *testing.T) {
	world := adopted.Start(t)
	client := world.HTTP(t, adopted.Controller)
	for method, subresource := range map[string]string{
		http.MethodPost: "import?resource=gadgets", http.MethodDelete: "import", http.MethodGet: "replica",
	} {
		url := world.URL("/apis/kubeannex.io/v1alpha1/annexedgroups/none.test/" + subresource)
		answer, err := adopted.Do(t.Context(), client, method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if status := answer.Status(t); answer.Code != http.StatusNotFound || !strings.Contains(status.Message, `"none.test" not found`) {
			t.Errorf("%s: got code %d: %s", subresource, answer.Code, status.Message)
		}
	}
}

// TestWhatComesBeforeAnErrorIsStored lets the controller see how far it came.
func TestWhatComesBeforeAnErrorIsStored(t *testing.T) {
	world := adopted.Start(t)
	objects := gadgets(500)
	bad := gadget("bad", 1)
	bad.SetUID("")
	answer := world.Subresource(t, adopted.Controller, http.MethodPost, "import?resource=gadgets", adopted.Stream(t, watch.Added, append(objects, bad)...))
	if answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("got code %d: %s", answer.Code, answer.Body)
	}
	if got := world.Digest(t, "gadgets").Objects; got != 500 {
		t.Errorf("got %d objects, want 500", got)
	}
}

// TestConnectionThatBreaks ends the request of an import in the middle, and does it again.
func TestConnectionThatBreaks(t *testing.T) {
	world := adopted.Start(t)
	objects := gadgets(500)
	content := adopted.Stream(t, watch.Added, objects...).String()
	ctx, cancel := context.WithCancel(t.Context())
	body, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := adopted.Do(ctx, world.HTTP(t, adopted.Controller), http.MethodPost,
			world.URL("/apis/kubeannex.io/v1alpha1/annexedgroups/lab.annex.test/import?resource=gadgets"), body)
		done <- err
	}()
	if _, err := io.WriteString(writer, content[:len(content)/2]); err != nil {
		t.Fatal(err)
	}
	var partial int64
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		partial = world.Digest(t, "gadgets").Objects
		return partial > 100, nil
	})
	if err != nil {
		t.Fatalf("waiting for objects: %v", err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("the broken request succeeded")
	}
	if got := world.Digest(t, "gadgets").Objects; got >= 500 {
		t.Errorf("half a stream has %d objects", got)
	}
	result := world.Import(t, "gadgets", objects...)
	if got := world.Digest(t, "gadgets"); got.Objects != 500 || got.Digest != result.Digest {
		t.Errorf("after a second try: got %+v, want 500 objects and %s", got, result.Digest)
	}
	if result.Written+result.Unchanged != 500 || result.Unchanged < partial {
		t.Errorf("second try: got %+v", result)
	}
}

func TestFullEtcd(t *testing.T) {
	world := adopted.Start(t, "--embedded-etcd-quota-bytes=8388608")
	for batch := range 100 {
		var objects []*unstructured.Unstructured
		for i := range 10 {
			objects = append(objects, big(fmt.Sprintf("g-%d-%d", batch, i), 100<<10))
		}
		answer := world.Subresource(t, adopted.Controller, http.MethodPost, "import?resource=gadgets", adopted.Stream(t, watch.Added, objects...))
		if answer.Code == http.StatusOK {
			continue
		}
		status := answer.Status(t)
		if answer.Code != http.StatusInsufficientStorage || status.Reason != importing.ReasonInsufficientStorage ||
			!strings.Contains(status.Message, fmt.Sprintf("t/g-%d-", batch)) || !strings.Contains(status.Message, "full") {
			t.Errorf("got code %d: %s", answer.Code, answer.Body)
		}
		if replica := world.Replica(t); replica.QuotaBytes != 8388608 || replica.DatabaseBytes < 4<<20 {
			t.Errorf("replica: got %+v", replica)
		}
		return
	}
	t.Error("etcd never became full")
}
