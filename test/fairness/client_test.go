// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

const (
	allGadgets = "/apis/lab.annex.test/v1/gadgets"
	oneGadget  = "/apis/lab.annex.test/v1/namespaces/t/gadgets/g-00005"
	// window is how much of an answer a client takes before it reads, the least that HTTP/2 has.
	window = 64 << 10
)

// answer is a response without its body.
type answer struct {
	code       int
	retryAfter string
	level      string
	body       []byte
}

// client is one user at one server, with a connection of its own.
type client struct {
	host string
	http *http.Client
}

// newClient returns a client that does not repeat what fails.
func newClient(t *testing.T, config *rest.Config) *client {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true,
		// An answer of one letter a thousand times would be short.
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{MaxReceiveBufferPerStream: window, MaxReceiveBufferPerConnection: window},
	}
	t.Cleanup(transport.CloseIdleConnections)
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	return &client{host: config.Host, http: &http.Client{Transport: wrapped}}
}

// begin sends a request and returns once the header of the answer is there.
func (c *client) begin(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return c.http.Do(request)
}

// do sends a request and reads the answer.
func (c *client) do(ctx context.Context, method, path string, body []byte) (answer, error) {
	response, err := c.begin(ctx, method, path, body)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return answer{
		code: response.StatusCode, retryAfter: response.Header.Get("Retry-After"),
		level: response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID"), body: read,
	}, err
}

// mustDo is do for a request that must be answered.
func (c *client) mustDo(ctx context.Context, t *testing.T, method, path string, body []byte) answer {
	t.Helper()
	got, err := c.do(ctx, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}
