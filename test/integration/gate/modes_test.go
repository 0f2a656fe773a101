// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

const (
	collection = "/apis/lab.annex.test/v1/namespaces/t/gadgets"
	// seeded is how many objects the group has.
	seeded = 3
	// settled bounds a wait for something that takes no time.
	settled = time.Minute
)

// startSeeded starts a server whose group has objects and is closed.
func startSeeded(t *testing.T) *adopted.World {
	t.Helper()
	world := adopted.Start(t)
	var objects []*unstructured.Unstructured
	for i := range seeded {
		object := env.Gadget("t", fmt.Sprintf("g%d", i), map[string]any{"size": int64(i)})
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		objects = append(objects, object)
	}
	world.Import(t, "gadgets", objects...)
	return world
}

// request is one kind of request.
type request struct{ method, path, body string }

func TestModes(t *testing.T) {
	world := startSeeded(t)
	requests := map[string]request{
		"get":               {http.MethodGet, collection + "/g0", ""},
		"get what is not":   {http.MethodGet, collection + "/none", ""},
		"get a subresource": {http.MethodGet, collection + "/g0/status", ""},
		"list":              {http.MethodGet, collection, ""},
		"list the cache":    {http.MethodGet, collection + "?resourceVersion=0", ""},
		"list old version":  {http.MethodGet, strings.Replace(collection, "v1", "v1beta1", 1), ""},
		"watch":             {http.MethodGet, collection + "?watch=1&timeoutSeconds=1", ""},
		"create":            {http.MethodPost, collection, `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"new"}}`},
		"create dry":        {http.MethodPost, collection + "?dryRun=All", `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"dry"}}`},
		"delete":            {http.MethodDelete, collection + "/new", ""},
		"delete many":       {http.MethodDelete, collection + "?labelSelector=none=such", ""},
		"scale":             {http.MethodPut, collection + "/g1/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"g1","namespace":"t"},"spec":{"replicas":4}}`},
		"a kind that is no": {http.MethodGet, strings.Replace(collection, "gadgets", "nothings", 1), ""},
	}
	order := []string{
		"get", "get what is not", "get a subresource", "list", "list the cache", "list old version", "watch",
		"create", "create dry", "delete", "delete many", "scale", "a kind that is no",
	}
	tests := []struct {
		mode v1alpha1.ServingMode
		want []int
	}{
		{v1alpha1.ServingClosed, []int{503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503}},
		{v1alpha1.ServingReadOnly, []int{200, 404, 200, 200, 200, 200, 200, 429, 429, 429, 429, 429, 404}},
		{v1alpha1.ServingOpen, []int{200, 404, 200, 200, 200, 200, 200, 201, 201, 200, 200, 200, 404}},
		{v1alpha1.ServingReleased, []int{429, 429, 429, 429, 429, 429, 410, 429, 429, 429, 429, 429, 429}},
		{v1alpha1.ServingClosed, []int{503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503}},
	}
	client := world.HTTP(t, adopted.Somebody)
	for _, tc := range tests {
		t.Run(string(tc.mode), func(t *testing.T) {
			world.ServeNow(t, tc.mode)
			for i, name := range order {
				r := requests[name]
				answer := send(t, client, world.URL(r.path), r)
				if answer.Code != tc.want[i] {
					t.Errorf("%s: got code %d, want %d: %s", name, answer.Code, tc.want[i], answer.Body)
				}
				if refused := answer.Code == 503 || answer.Code == 429; refused && answer.Header.Get("Retry-After") != "1" {
					t.Errorf("%s: got Retry-After %q, want 1", name, answer.Header.Get("Retry-After"))
				}
			}
			// What tells clients that the group exists is always there.
			if answer := send(t, client, world.URL("/apis/lab.annex.test/v1"), request{method: http.MethodGet}); answer.Code != http.StatusOK {
				t.Errorf("discovery: got code %d", answer.Code)
			}
		})
	}
}

func send(t *testing.T, client *http.Client, url string, r request) adopted.Answer {
	t.Helper()
	answer, err := adopted.Do(t.Context(), client, r.method, url, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestNeverWrong reads while the mode changes: whatever is answered, it is not
// that the objects do not exist.
func TestNeverWrong(t *testing.T) {
	world := startSeeded(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, path := range []string{collection + "/g1", collection, collection + "?resourceVersion=0", collection + "?fieldSelector=spec.size=1"} {
		client := world.HTTP(t, adopted.Somebody)
		group.Go(func() {
			for ctx.Err() == nil {
				if err := check(ctx, client, world.URL(path)); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", path, err)
					return
				}
			}
		})
	}
	for range 5 {
		for _, mode := range []v1alpha1.ServingMode{
			v1alpha1.ServingReadOnly, v1alpha1.ServingOpen, v1alpha1.ServingReadOnly, v1alpha1.ServingReleased, v1alpha1.ServingClosed,
		} {
			world.ServeNow(t, mode)
		}
	}
	cancel()
	group.Wait()
}

func check(ctx context.Context, client *http.Client, url string) error {
	answer, err := adopted.Do(ctx, client, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	switch answer.Code {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return nil
	case http.StatusOK:
	default:
		return fmt.Errorf("code %d: %s", answer.Code, answer.Body)
	}
	var list unstructured.UnstructuredList
	if err := json.Unmarshal(answer.Body, &list.Object); err != nil {
		return err
	}
	items, isList := list.Object["items"].([]any)
	if isList && len(items) != seeded && !strings.Contains(url, "fieldSelector") {
		return fmt.Errorf("%d objects", len(items))
	}
	if isList && len(items) == 0 {
		return errors.New("no objects")
	}
	return nil
}

// TestWritesInFlightHoldTheFenceUp checks what the controller drains a group by.
func TestWritesInFlightHoldTheFenceUp(t *testing.T) {
	world := startSeeded(t)
	world.ServeNow(t, v1alpha1.ServingOpen)
	body, content := io.Pipe()
	answers := make(chan adopted.Answer, 1)
	client := expectingClient(t, world)
	go func() {
		answer, err := postExpecting(t.Context(), client, world.URL(collection), body)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	// The first byte is read when the server asks for the body: the write has passed the gate.
	if _, err := content.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	world.Serve(t, v1alpha1.ServingReadOnly)
	awaitRefusal(t, world)
	if got := world.Replica(t).Serving; got != v1alpha1.ServingOpen {
		t.Errorf("while a write is in flight the replica reports %s", got)
	}
	if _, err := content.Write([]byte(`"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"late"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	if answer := <-answers; answer.Code != http.StatusCreated {
		t.Errorf("the write that had passed: code %d: %s", answer.Code, answer.Body)
	}
	world.ServeNow(t, v1alpha1.ServingReadOnly)
	if got := world.Digest(t, "gadgets").Objects; got != seeded+1 {
		t.Errorf("got %d objects, want %d", got, seeded+1)
	}
}

// expectingClient waits for the server to ask for a body, which needs HTTP/1.1.
func expectingClient(t *testing.T, world *adopted.World) *http.Client {
	t.Helper()
	config, err := rest.TLSConfigFor(world.Config(t, adopted.Somebody))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: config, ExpectContinueTimeout: settled,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func postExpecting(ctx context.Context, client *http.Client, url string, body io.Reader) (adopted.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return adopted.Answer{}, err
	}
	request.Header.Set("Expect", "100-continue")
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return adopted.Answer{}, err
	}
	content, err := io.ReadAll(response.Body)
	return adopted.Answer{Code: response.StatusCode, Body: content}, errors.Join(err, response.Body.Close())
}

// awaitRefusal waits until new writes are refused.
func awaitRefusal(t *testing.T, world *adopted.World) {
	t.Helper()
	client := world.HTTP(t, adopted.Somebody)
	await(t, "refusals", func() bool {
		return send(t, client, world.URL(collection+"/none"), request{method: http.MethodDelete}).Code == http.StatusTooManyRequests
	})
}

func TestSubresourcesAreAnnounced(t *testing.T) {
	world := adopted.Start(t)
	client := world.HTTP(t, adopted.Somebody)
	var list metav1.APIResourceList
	send(t, client, world.URL("/apis/kubeannex.io/v1alpha1"), request{method: http.MethodGet}).Decode(t, &list)
	got := map[string][]string{}
	for _, resource := range list.APIResources {
		got[resource.Name] = resource.Verbs
	}
	for name, verbs := range map[string][]string{
		"annexedgroups/import": {"create", "delete"}, "annexedgroups/digest": {"get"}, "annexedgroups/replica": {"get"},
	} {
		if diff := cmp.Diff(verbs, got[name]); diff != "" {
			t.Errorf("verbs of %s (-want +got):\n%s", name, diff)
		}
	}
	document := send(t, client, world.URL("/openapi/v3/apis/kubeannex.io/v1alpha1"), request{method: http.MethodGet})
	for _, want := range []string{"annexedgroups/{name}/import", "annexedgroups/{name}/digest", "annexedgroups/{name}/replica", "io.kubeannex.v1alpha1.ImportResult", "io.kubeannex.v1alpha1.ReplicaStatus"} {
		if !strings.Contains(string(document.Body), want) {
			t.Errorf("OpenAPI does not know %s", want)
		}
	}
}
