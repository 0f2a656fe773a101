// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/test/env/testetcd"
)

func TestAPIServerCompacts(t *testing.T) {
	server := testserver.StartStandalone(t, "--etcd-compaction-interval=500ms")
	createOneOfEach(t, server.ClientConfig)
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Options.Etcd.Generic.StorageConfig.Transport.ServerList})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // it was only read from
	first, err := client.Get(t.Context(), "/registry/lab.annex.test/gadgets/t/g")
	if err != nil {
		t.Fatal(err)
	}
	// Something has to be written after the revision, or it stays the newest.
	if _, err := client.Put(t.Context(), "/placement-test", "x"); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.Get(ctx, "/registry/lab.annex.test/gadgets/t/g", clientv3.WithRev(first.Header.Revision))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		t.Errorf("revision %d is not compacted: %v", first.Header.Revision, err)
	}
}

func TestRevisionFloor(t *testing.T) {
	low := testetcd.Run(t, nil).Client.Endpoints()[0]
	tests := map[string]struct {
		flags     []string
		wantReady bool
	}{
		"an etcd below the floor": {
			flags: []string{"--etcd-servers=" + low},
		},
		"an etcd below the floor for one resource": {
			flags: []string{"--etcd-servers-overrides=lab.annex.test/gadgets#" + low},
		},
		"an etcd below the floor, accepted": {
			flags:     []string{"--etcd-servers=" + low, "--etcd-revision-floor=0"},
			wantReady: true,
		},
		"an etcd at the floor": {
			flags:     []string{"--etcd-servers=" + startEtcd(t)},
			wantReady: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server, err := testserver.StartExcept(t.Context(), []string{"etcd-revision-floor"}, append([]string{"--standalone", "--root-dir=" + testserver.ShortTempDir(t)}, tc.flags...)...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
			}()
			client, err := kubernetes.NewForConfig(server.ClientConfig)
			if err != nil {
				t.Fatal(err)
			}
			body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz/etcd-revision-floor").DoRaw(t.Context())
			if ready := err == nil; ready != tc.wantReady {
				t.Errorf("ready: got %v (%v), want %v: %s", ready, err, tc.wantReady, body)
			}
			if !tc.wantReady && !strings.Contains(string(body), "below the floor") {
				t.Errorf("the check does not say why: %s", body)
			}
		})
	}
}

func TestUnreachableOverrideLeavesTheRestAlone(t *testing.T) {
	server, err := testserver.StartExcept(t.Context(), []string{"etcd-override-readiness-0", "etcd-revision-floor"},
		"--standalone", "--root-dir="+testserver.ShortTempDir(t), "--etcd-servers-overrides=lab.annex.test/gadgets#http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client, err := kubernetes.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{"/livez": true, "/apis/kubeannex.io/v1alpha1/annexedgroups": true, "/readyz/etcd-override-readiness-0": false}
	for path, want := range paths {
		_, err := client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if got := err == nil; got != want {
			t.Errorf("%s succeeds: %v (%v), want %v", path, got, err, want)
		}
	}
}
