// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
	"github.com/kubeannex/annex/test/env"
)

const (
	// inFlight is how many reads the servers of TestInFlight let in at a time.
	inFlight = 3
	// token is that of a user of the standalone server who may do nothing.
	token = "an-ordinary-token"
)

// TestInFlightDefaults holds the limits of a server without fairness to kube-apiserver's.
func TestInFlightDefaults(t *testing.T) {
	run := options.NewOptions().ServerRun
	if run.MaxRequestsInFlight != 400 || run.MaxMutatingRequestsInFlight != 200 {
		t.Errorf("got %d reads and %d writes in flight, want 400 and 200", run.MaxRequestsInFlight, run.MaxMutatingRequestsInFlight)
	}
}

// TestInFlight fills the reads that a server lets in at a time with lists that are read slowly. Another
// read is refused with 429 and Retry-After, a write is not: it has a limit of its own.
func TestInFlight(t *testing.T) {
	limits := []string{fmt.Sprintf("--max-requests-inflight=%d", inFlight), "--max-mutating-requests-inflight=1"}
	for name, tc := range map[string]struct {
		options env.AnnexOptions
		// ordinary turns the configuration of an administrator into that of somebody else.
		ordinary func(t *testing.T, annex *env.Annex) *rest.Config
		// refusedWrite is the answer to a write of theirs.
		wantWrite int
	}{
		"alone": {
			options: env.AnnexOptions{Name: "alone", Args: append(limits, "--token-auth-file="+tokens(t))},
			ordinary: func(t *testing.T, annex *env.Annex) *rest.Config {
				config := rest.AnonymousClientConfig(admin(t, annex))
				config.BearerToken = token
				return config
			},
			wantWrite: http.StatusForbidden,
		},
		"in a cluster, without fairness": {
			options: env.AnnexOptions{Name: "unfair", Host: suite.host, Embedded: true, Args: append(limits, "--enable-priority-and-fairness=false")},
			ordinary: func(t *testing.T, annex *env.Annex) *rest.Config {
				config, err := annex.BalancedConfig(quiet)
				if err != nil {
					t.Fatal(err)
				}
				return config
			},
			wantWrite: http.StatusOK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			annex, err := suite.env.StartAnnex(ctx, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			for _, prepare := range []func(context.Context, *rest.Config) error{env.InstallGadgets, seed} {
				if err := prepare(ctx, admin(t, annex)); err != nil {
					t.Fatal(err)
				}
			}
			release := holdReads(ctx, t, annex)
			ordinary := newClient(t, tc.ordinary(t, annex))
			if got := ordinary.mustDo(ctx, t, http.MethodGet, oneGadget, nil); got.code != http.StatusTooManyRequests || got.retryAfter == "" {
				t.Errorf("a read beside %d others: %d, Retry-After %q, want 429 with Retry-After", inFlight, got.code, got.retryAfter)
			}
			if got := ordinary.mustDo(ctx, t, http.MethodPatch, oneGadget, []byte(`{"metadata":{"labels":{"a":"b"}}}`)); got.code != tc.wantWrite {
				t.Errorf("a write beside them: %d, want %d: %.200s", got.code, tc.wantWrite, got.body)
			}
			release()
			if err := annex.Replicas[0].Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// holdReads has an administrator begin as many lists as are let in.
func holdReads(ctx context.Context, t *testing.T, annex *env.Annex) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	for range inFlight {
		response, err := newClient(t, admin(t, annex)).begin(ctx, http.MethodGet, allGadgets, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != http.StatusOK {
			t.Fatalf("a list that is let in: %s", response.Status)
		}
	}
	return cancel
}

func admin(t *testing.T, annex *env.Annex) *rest.Config {
	t.Helper()
	config, err := annex.AdminConfig(0)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// tokens writes the file with the one token.
func tokens(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte(token+",ordinary,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
