// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/etcd/space/spacetest"
)

// TestStartsOnFullEtcd demands that a server serves reads where nothing can be written, and says so.
func TestStartsOnFullEtcd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args func(t *testing.T) (root string, args []string)
		want string
	}{
		"an external one": {
			args: func(t *testing.T) (string, []string) {
				return filepath.Join(t.TempDir(), "root"), []string{"--etcd-servers=" + fullEtcd(t)}
			},
			want: "alarm disarm",
		},
		"the embedded one, at the quota that it has reached": {
			args: func(t *testing.T) (string, []string) {
				return fullRoot(t), []string{fmt.Sprintf("--embedded-etcd-quota-bytes=%d", fullQuota)}
			},
			want: "raise --embedded-etcd-quota-bytes or delete objects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, args := tc.args(t)
			server := startServer(t, root, args...)
			defer stopServer(t, server)
			if log := server.Stdout.(*output).String(); !strings.Contains(log, "Etcd is full: the server starts all the same") || !strings.Contains(log, tc.want) {
				t.Errorf("the log does not say that etcd is full and %q", tc.want)
			}
			if _, err := get(t.Context(), root, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"); err != nil {
				t.Errorf("reading: %v", err)
			}
			var metrics string
			err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
				var err error
				metrics, err = get(ctx, root, "/metrics")
				return strings.Contains(metrics, "annex_etcd_full{"), err
			})
			if err != nil || !strings.Contains(metrics, "} 1\n") {
				t.Errorf("the metric annex_etcd_full is missing: %v", err)
			}
		})
	}
}

// fullQuota is the quota that fullEtcd and fullRoot have reached.
const fullQuota = 4 << 20

// fullEtcd returns the endpoint of an etcd that has reached its quota.
func fullEtcd(t *testing.T) string {
	t.Helper()
	server := startFull(t, t.TempDir())
	t.Cleanup(func() { closeFull(t, server) })
	return server.Endpoints()[0]
}

// fullRoot returns the root directory of an embedded etcd that has reached its quota and was closed.
func fullRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	closeFull(t, startFull(t, root))
	return root
}

func closeFull(t *testing.T, server *embedded.Server) {
	t.Helper()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

func startFull(t *testing.T, root string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{RootDir: root, QuotaBackendBytes: fullQuota})
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	spacetest.Fill(t, client, fullQuota, int64(embedded.DefaultMaxRequestBytes))
	return server
}
