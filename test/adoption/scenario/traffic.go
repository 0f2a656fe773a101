// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Traffic counts the requests of a client by what they ask for.
type Traffic struct {
	mu sync.Mutex
	// lists counts lists, and watches that begin with a list.
	lists, watches int
	codes          map[int]int
}

// observe returns a copy of config whose requests are counted.
func observe(config *rest.Config) (*rest.Config, *Traffic) {
	traffic := &Traffic{codes: map[int]int{}}
	observed := rest.CopyConfig(config)
	observed.Wrap(func(inner http.RoundTripper) http.RoundTripper { return &observer{inner: inner, traffic: traffic} })
	return observed, traffic
}

// Lists is the number of lists that were answered, streamed ones included.
func (t *Traffic) Lists() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lists
}

// Code is the number of answers with an HTTP status code.
func (t *Traffic) Code(code int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.codes[code]
}

type observer struct {
	inner   http.RoundTripper
	traffic *Traffic
}

var _ http.RoundTripper = (*observer)(nil)

// RoundTrip passes a request on and counts it with its answer.
func (o *observer) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := o.inner.RoundTrip(request)
	if err != nil {
		return answer, err
	}
	o.traffic.mu.Lock()
	defer o.traffic.mu.Unlock()
	o.traffic.codes[answer.StatusCode]++
	if answer.StatusCode != http.StatusOK || request.Method != http.MethodGet {
		return answer, err
	}
	query := request.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true", query.Get("watch") == "" && query.Get("continue") == "":
		o.traffic.lists++
	case query.Get("watch") != "":
		o.traffic.watches++
	}
	return answer, err
}
