// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtrouble

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const (
	gadgets = "/apis/lab.annex.test/v1/namespaces/" + namespace + "/gadgets"
	// atOnce bounds an answer. Without trouble it takes a thousandth of that.
	atOnce = 10 * time.Second
)

// serves decodes what a replica says of a group, and reports whether it serves it.
func serves(body []byte, status *v1alpha1.ReplicaStatus) bool {
	return json.Unmarshal(body, status) == nil && status.Serving == v1alpha1.ServingOpen
}

// answer is a response. Of one that is an error, status is filled.
type answer struct {
	code   int
	body   []byte
	status metav1.Status
}

// client repeats nothing.
type client struct {
	host string
	http *http.Client
}

func newClient(t *testing.T, config *rest.Config) *client {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &client{host: config.Host, http: httpClient}
}

func (c *client) begin(ctx context.Context, method, path, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	switch {
	case method == http.MethodPatch:
		request.Header.Set("Content-Type", "application/merge-patch+json")
	case body != "":
		request.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(request)
}

// ask returns the answer, which must come at once.
func (c *client) ask(ctx context.Context, t *testing.T, method, path, body string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	response, err := c.begin(ctx, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	got := answer{code: response.StatusCode}
	if got.body, err = io.ReadAll(response.Body); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if got.code >= http.StatusBadRequest {
		_ = json.Unmarshal(got.body, &got.status) // what is no status leaves it empty
	}
	return got
}

// must is ask for a request that succeeds.
func (c *client) must(ctx context.Context, t *testing.T, method, path, body string) answer {
	t.Helper()
	got := c.ask(ctx, t, method, path, body)
	if got.code >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %.300s", method, path, got.code, got.body)
	}
	return got
}
