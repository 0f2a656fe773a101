// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
)

const (
	smallQuota = 4 << 20
	valueBytes = 256 << 10
)

// start runs an etcd on dir until the returned function is called.
func start(t *testing.T, dir string, quota int64) (*clientv3.Client, func()) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{RootDir: dir, QuotaBackendBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	client, err := etcdclient.New(context.WithoutCancel(t.Context()), storagebackend.TransportConfig{ServerList: server.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	return client, func() {
		client.Close() //nolint:errcheck // nothing is lost with it
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// fill writes until the etcd refuses and returns how many values it took.
func fill(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	value := strings.Repeat("x", valueBytes)
	for i := range 10 * smallQuota / valueBytes {
		_, err := client.Put(t.Context(), fmt.Sprintf("/fill/%03d", i), value)
		if err != nil {
			if !strings.Contains(err.Error(), "database space exceeded") {
				t.Fatal(err)
			}
			return i
		}
	}
	t.Fatal("etcd took ten times its quota")
	return 0
}

func TestFullEtcd(t *testing.T) {
	dir := t.TempDir()
	client, stop := start(t, dir, smallQuota)
	if err := Check(t.Context(), client); err != nil {
		t.Errorf("an empty etcd is reported: %v", err)
	}
	written := fill(t, client)

	err := Check(t.Context(), client)
	if err == nil || !strings.Contains(err.Error(), "is full") || !strings.Contains(err.Error(), "alarm disarm") {
		t.Errorf("a full etcd is reported as %v", err)
	}
	// Defragmentation may make room below the quota that was reached; not below the values alone.
	err = Recover(t.Context(), client, int64(written*valueBytes/2))
	if err == nil || !strings.Contains(err.Error(), "--embedded-etcd-quota-bytes") {
		t.Errorf("an etcd that stays full is reported as %v", err)
	}
	stop()

	client, stop = start(t, dir, 4*smallQuota)
	defer stop()
	if err := Recover(t.Context(), client, 4*smallQuota); err != nil {
		t.Errorf("with a larger quota: %v", err)
	}
	if _, err := client.Put(t.Context(), "/after", "x"); err != nil {
		t.Errorf("writing after the recovery: %v", err)
	}
	response, err := client.Get(t.Context(), "/fill/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if int(response.Count) != written {
		t.Errorf("got %d values after the recovery, want %d", response.Count, written)
	}
}
