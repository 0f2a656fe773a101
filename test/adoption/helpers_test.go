// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

// get asks once, without client-go's retries, and returns code and body.
func get(t *testing.T, config *rest.Config, path string) (int, string) {
	t.Helper()
	code, body, _ := getWith(t, config, path, nil)
	return code, body
}

// getWith is get with request headers; it also returns those of the answer.
func getWith(t *testing.T, config *rest.Config, path string, headers map[string]string) (int, string, http.Header) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(scenario.Context(t), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return answer.StatusCode, string(body), answer.Header
}

// quickly fails the test when something takes longer than it may.
func quickly(t *testing.T, what string, limit time.Duration, do func()) {
	t.Helper()
	begin := time.Now()
	do()
	took := time.Since(begin)
	t.Logf("%s took %s", what, took.Round(time.Millisecond))
	if took > limit {
		t.Errorf("%s took %s, want at most %s", what, took, limit)
	}
}
