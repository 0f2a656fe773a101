// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/kubeannex/annex/test/env"
)

// TestStartWithoutCluster starts annex while kube-apiserver does not answer, and while it
// hangs. It lives and is not ready, keeps clients waiting, and serves once it knows whom to trust.
func TestStartWithoutCluster(t *testing.T) {
	w := suite.abac
	list := request{method: http.MethodGet, path: gadgets(rightsNamespace)}
	for name, tc := range map[string]struct {
		away, back func(context.Context, *env.APIServer) error
	}{
		"down": {
			func(ctx context.Context, server *env.APIServer) error { return server.Stop(ctx) },
			func(_ context.Context, server *env.APIServer) error { return server.Start() },
		},
		"hanging": {
			func(_ context.Context, server *env.APIServer) error { return server.Pause() },
			func(_ context.Context, server *env.APIServer) error { return server.Continue() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			cluster, replica := w.host.APIServers[0], w.annex.Replicas[0]
			if err := replica.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			if err := tc.away(ctx, cluster); err != nil {
				t.Fatal(err)
			}
			if err := replica.Start(); err != nil {
				t.Fatal(err)
			}
			checkUntrusting(t, w)

			if err := tc.back(ctx, cluster); err != nil {
				t.Fatal(err)
			}
			if err := cluster.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			if err := replica.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			for _, by := range w.ways() {
				for _, user := range []who{w.adminUser(t), w.user(t, "ben")} {
					client, host := by.client(t, user)
					await(t, "an answer by "+by.name, code(client, host, by.group, user, list, http.StatusOK))
				}
			}
		})
	}
}

// checkUntrusting demands a server that lives and answers nobody.
func checkUntrusting(t *testing.T, w *world) {
	t.Helper()
	direct, nobody := w.direct(), who{}
	live := request{method: http.MethodGet, path: "/livez?verbose=1"}
	client, host := direct.client(t, nobody)
	await(t, "liveness", code(client, host, "", nobody, live, http.StatusOK))
	ready := direct.ask(t, nobody, request{method: http.MethodGet, path: "/readyz?verbose=1"})
	if ready.code != http.StatusInternalServerError || !strings.Contains(ready.body, "[-]authentication-settings failed") {
		t.Errorf("readiness: got %d, want 500 for authentication-settings: %s", ready.code, ready.body)
	}
	for name, user := range map[string]who{
		"an administrator": w.adminUser(t), "a user": w.user(t, "ben"), "a token": {token: "x"}, "nobody": nobody,
		"the front proxy": {pair: w.host.FrontProxyPair(), headers: asBen()},
	} {
		got := direct.ask(t, user, request{method: http.MethodGet, path: gadgets(rightsNamespace)})
		if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: got %s with Retry-After %q, want 503 with 1", name, got.status(), got.header.Get("Retry-After"))
		}
	}
	select {
	case <-w.annex.Replicas[0].Exited():
		t.Errorf("annex has ended:\n%s", w.annex.Replicas[0].Tail(5))
	default:
	}
}
