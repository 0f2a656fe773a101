// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// pollInterval is the pause between two looks at what is about to change.
const pollInterval = 50 * time.Millisecond

// way is how a request reaches gadgets.
type way struct {
	name, group string
	config      func(env.KeyPair) *rest.Config
}

// ways returns the judge, which is the first, and both ways to annex.
func (w *world) ways() []way {
	return append([]way{{"judge", judgeGroup, w.host.ConfigWith}}, w.annexWays()...)
}

func (w *world) annexWays() []way {
	return []way{{"through", env.FixtureGroup, w.host.ConfigWith}, w.direct()}
}

func (w *world) direct() way {
	return way{"direct", env.FixtureGroup, func(pair env.KeyPair) *rest.Config { return w.annex.ConfigWith(0, pair) }}
}

// who is what a client proves itself with and whom it wants to be.
type who struct {
	pair        env.KeyPair
	token       string
	headers     map[string]string
	impersonate rest.ImpersonationConfig
}

// user is a client with a certificate of the cluster.
func (w *world) user(t *testing.T, name string, groups ...string) who {
	t.Helper()
	return certified(t, w.host.ClientCA(), name, groups...)
}

func certified(t *testing.T, ca *env.CA, name string, groups ...string) who {
	t.Helper()
	pair, err := ca.Client(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return who{pair: pair}
}

func (w *world) adminUser(t *testing.T) who { return w.user(t, "admin", "system:masters") }

// with returns the same client with further headers.
func (w who) with(headers map[string]string) who {
	w.headers = headers
	return w
}

// as returns the same client that impersonates somebody.
func (w who) as(impersonate rest.ImpersonationConfig) who {
	w.impersonate = impersonate
	return w
}

// request is one for gadgets. GROUP in its path and body stands for their group.
type request struct {
	method, path, body string
	headers            map[string]string
	// endless says that an answer without an error does not end and is not read.
	endless bool
}

// answer is what a client sees, with the judge's group replaced by that of annex.
type answer struct {
	code   int
	header http.Header
	body   string
}

// status is how an answer ends, for comparisons.
func (a answer) status() string {
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || status.Kind != "Status" {
		return fmt.Sprint(a.code)
	}
	return fmt.Sprintf("%d %s: %s", a.code, status.Reason, status.Message)
}

// client returns a client of who by a way. It keeps no connections, over which a server may know it otherwise.
func (w way) client(t *testing.T, user who) (*http.Client, string) {
	t.Helper()
	config := w.config(user.pair)
	config.BearerToken, config.Impersonate = user.token, user.impersonate
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, config.Host
}

// ask sends a request and fails the test when there is no answer.
func (w way) ask(t *testing.T, user who, r request) answer {
	t.Helper()
	client, host := w.client(t, user)
	got, err := send(testContext(t), client, host, w.group, user, r)
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	return got
}

func send(ctx context.Context, client *http.Client, host, group string, user who, r request) (answer, error) {
	in := func(text string) string { return strings.ReplaceAll(text, "GROUP", group) }
	req, err := http.NewRequestWithContext(ctx, r.method, host+in(r.path), strings.NewReader(in(r.body)))
	if err != nil {
		return answer{}, err
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, headers := range []map[string]string{user.headers, r.headers} {
		for name, value := range headers {
			req.Header.Set(name, value)
		}
	}
	response, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	if r.endless && response.StatusCode == http.StatusOK {
		return answer{code: response.StatusCode, header: response.Header}, nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{response.StatusCode, response.Header, strings.ReplaceAll(string(body), judgeGroup, env.FixtureGroup)}, nil
}

// await waits for what a server does by itself a moment later.
func await(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextCancel(testContext(t), pollInterval, true, func(ctx context.Context) (bool, error) { return done(ctx), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// gadget is a body for the group of the way.
func gadget(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"GROUP/v1","kind":"Gadget","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// gadgets is the path of gadgets in a namespace.
func gadgets(namespace string) string { return "/apis/GROUP/v1/namespaces/" + namespace + "/gadgets" }

// code is a condition for await: a request is answered with a code.
func code(client *http.Client, host, group string, user who, r request, want int) func(context.Context) bool {
	return func(ctx context.Context) bool {
		got, err := send(ctx, client, host, group, user, r)
		return err == nil && got.code == want
	}
}
