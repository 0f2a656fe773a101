// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

// answer is a response that was read to its end.
type answer struct {
	code int
	body []byte
}

// client has a connection of its own and repeats nothing but what Go's transport does by itself.
type client struct {
	host string
	http *http.Client
}

func newClient(t *testing.T, config *rest.Config) *client {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &client{host: config.Host, http: &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}}}
}

// begin sends a request and returns once the header of the answer is there.
func (c *client) begin(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	switch {
	case method == http.MethodPatch:
		request.Header.Set("Content-Type", "application/merge-patch+json")
	case body != nil:
		request.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(request)
}

func (c *client) do(ctx context.Context, method, path string, body []byte) (answer, error) {
	response, err := c.begin(ctx, method, path, body)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, body: read}, err
}
