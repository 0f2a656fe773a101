// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/etcd/space/spacetest"
)

const (
	smallQuota = 4 << 20
	maxRequest = 1 << 20
	// largestValue leaves room for the key and the form of a request.
	largestValue = maxRequest - 1<<10
)

// start runs an etcd on dir until the returned function is called.
func start(t *testing.T, dir string, quota int64) (*clientv3.Client, func()) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{RootDir: dir, QuotaBackendBytes: quota, MaxRequestBytes: maxRequest})
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

func distinct(i int) string { return strconv.Itoa(i) }

func same(int) string { return "same" }

func TestCheck(t *testing.T) {
	client, stop := start(t, t.TempDir(), smallQuota)
	defer stop()
	if err := Check(t.Context(), client); err != nil {
		t.Errorf("an empty etcd is reported: %v", err)
	}
	spacetest.Write(t, client, distinct)
	err := Check(t.Context(), client)
	if err == nil || !strings.Contains(err.Error(), "is full") || !strings.Contains(err.Error(), "alarm disarm") {
		t.Errorf("a full etcd is reported as %v", err)
	}
}

// TestRecover fills an etcd, restarts it and demands that it takes the largest
// request afterwards, at the very quota that was reached.
func TestRecover(t *testing.T) {
	cases := map[string]struct {
		key func(i int) string
		// meanwhile happens between the last write and the restart.
		meanwhile func(t *testing.T, client *clientv3.Client)
		quota     int64
		wantKeys  func(written int) int
	}{
		"full of objects that were deleted and compacted": {
			key: distinct, quota: smallQuota, meanwhile: deleteAndCompact,
			wantKeys: func(int) int { return 0 },
		},
		"full of old revisions": {
			key: same, quota: smallQuota,
			wantKeys: func(int) int { return 1 },
		},
		"full of objects, with a larger quota": {
			key: distinct, quota: 8 * smallQuota, // etcd looks at the size of what is committed: it overshoots
			wantKeys: func(written int) int { return written },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			client, stop := start(t, dir, smallQuota)
			spacetest.Write(t, client, tc.key)
			written := spacetest.Count(t, client)
			if tc.meanwhile != nil {
				tc.meanwhile(t, client)
			}
			stop()

			client, stop = start(t, dir, tc.quota)
			defer stop()
			var log bytes.Buffer
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
			if err := Recover(ctx, client, Limits{Quota: tc.quota, Request: maxRequest}); err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "bytesBefore=") || !strings.Contains(log.String(), "bytesAfter=") {
				t.Errorf("want one line with the sizes before and after, got:\n%s", log.String())
			}
			if got, want := spacetest.Count(t, client), tc.wantKeys(written); got != want {
				t.Errorf("got %d values after the recovery, want %d", got, want)
			}
			if _, err := client.Put(t.Context(), "/after", strings.Repeat("x", largestValue)); err != nil {
				t.Errorf("writing after the recovery: %v", err)
			}
		})
	}
}

func deleteAndCompact(t *testing.T, client *clientv3.Client) {
	t.Helper()
	response, err := client.Delete(t.Context(), spacetest.Prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), response.Header.GetRevision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// TestRecoverRefuses demands that an etcd that holds as many objects as fit is
// refused, again and again, with nothing lost.
func TestRecoverRefuses(t *testing.T) {
	dir := t.TempDir()
	client, stop := start(t, dir, smallQuota)
	spacetest.Fill(t, client, smallQuota, maxRequest)
	written := spacetest.Count(t, client)
	stop()
	for range 2 {
		client, stop = start(t, dir, smallQuota)
		err := Recover(t.Context(), client, Limits{Quota: smallQuota, Request: maxRequest})
		if err == nil || !strings.Contains(err.Error(), "is full") || !strings.Contains(err.Error(), "raise --embedded-etcd-quota-bytes") || strings.Contains(err.Error(), "\n") {
			t.Errorf("an etcd that stays full is reported as %v", err)
		}
		if full, err := hasAlarm(t.Context(), client); err != nil || !full {
			t.Errorf("the alarm is %t, %v, want it kept", full, err)
		}
		if got := spacetest.Count(t, client); got != written {
			t.Errorf("got %d values after the refusal, want %d", got, written)
		}
		stop()
	}
}

// TestRecoverLeavesRoomForARequest demands that an etcd whose database is below
// its quota, but not by the largest request, is refused: its next write of that
// size would raise the alarm again.
func TestRecoverLeavesRoomForARequest(t *testing.T) {
	dir := t.TempDir()
	client, stop := start(t, dir, smallQuota)
	spacetest.Write(t, client, distinct)
	size, err := defragment(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for name, tc := range map[string]struct {
		quota    int64
		wantFull bool
	}{
		"half a request above":  {quota: size + maxRequest/2, wantFull: true},
		"two requests above it": {quota: size + 2*maxRequest},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(filepath.Join(copied, "etcd"), os.DirFS(filepath.Join(dir, "etcd"))); err != nil {
				t.Fatal(err)
			}
			client, stop := start(t, copied, tc.quota)
			defer stop()
			err := Recover(t.Context(), client, Limits{Quota: tc.quota, Request: maxRequest})
			if full := err != nil && strings.Contains(err.Error(), "is full"); full != tc.wantFull {
				t.Fatalf("Recover() = %v, want that it is full: %t", err, tc.wantFull)
			}
			if tc.wantFull {
				return
			}
			if _, err := client.Put(t.Context(), "/after", strings.Repeat("x", largestValue)); err != nil {
				t.Errorf("writing after the recovery: %v", err)
			}
		})
	}
}

func TestRecoverLeavesOthersAlone(t *testing.T) {
	client, stop := start(t, t.TempDir(), smallQuota)
	defer stop()
	// Limits that nothing meets, so that a look at them shows.
	if err := Recover(t.Context(), client, Limits{Quota: 1, Request: maxRequest}); err != nil {
		t.Errorf("an etcd without an alarm is reported: %v", err)
	}
}
