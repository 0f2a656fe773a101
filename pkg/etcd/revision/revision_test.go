// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func startEtcd(t *testing.T, floor int64) storagebackend.TransportConfig {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Options{RootDir: t.TempDir(), RevisionFloor: floor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return storagebackend.TransportConfig{ServerList: s.Endpoints()}
}

func TestCheckTransport(t *testing.T) {
	const born = 1000
	config := startEtcd(t, born)
	cases := map[string]struct {
		floor   int64
		wantMet bool
		wantErr string
	}{
		"above the floor":      {floor: born - 1, wantMet: true},
		"exactly at the floor": {floor: born, wantMet: true},
		"one below the floor": {floor: born + 1, wantErr: "etcd " + config.ServerList[0] + " is at revision 1000, below the floor 1001, " +
			"so watches of clients that come from another store could stay silent: restore its snapshot with " +
			"etcdutl snapshot restore --bump-revision 1001 --mark-compacted, or accept the risk with --etcd-revision-floor=0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := CheckTransport(t.Context(), config, "/registry", tc.floor)
			if err != nil {
				t.Fatal(err)
			}
			want := Result{Servers: config.ServerList, Current: born, Floor: tc.floor}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("CheckTransport() (-want +got):\n%s", diff)
			}
			if got.Met() != tc.wantMet {
				t.Errorf("Met() = %t, want %t", got.Met(), tc.wantMet)
			}
			message := ""
			if err := got.Err(); err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, message); diff != "" {
				t.Errorf("Err() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckTransportFails(t *testing.T) {
	cases := map[string]struct {
		config storagebackend.TransportConfig
		want   string
	}{
		"nobody listens":       {config: storagebackend.TransportConfig{ServerList: []string{"unix:///nowhere.sock"}}, want: "reading the revision of etcd unix:///nowhere.sock"},
		"no servers":           {want: "connecting to etcd"},
		"unreadable key":       {config: storagebackend.TransportConfig{ServerList: []string{"https://127.0.0.1:1"}, CertFile: "nowhere", KeyFile: "nowhere"}, want: "nowhere"},
		"egress is impossible": {config: storagebackend.TransportConfig{ServerList: []string{"http://127.0.0.1:1"}, EgressLookup: noEgress}, want: "no egress"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := CheckTransport(ctx, tc.config, "/registry", 1)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("CheckTransport() = %v, want one line with %q", err, tc.want)
			}
		})
	}
}

func noEgress(egressselector.NetworkContext) (utilnet.DialFunc, error) {
	return nil, errors.New("no egress")
}

func TestEgressDialerIsUsed(t *testing.T) {
	config := startEtcd(t, 5)
	socket := strings.TrimPrefix(config.ServerList[0], "unix://")
	config.ServerList = []string{"http://etcd.invalid:2379"}
	var once sync.Once
	dialed := ""
	config.EgressLookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) {
		return func(ctx context.Context, _, address string) (net.Conn, error) {
			once.Do(func() { dialed = address })
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}, nil
	}
	got, err := CheckTransport(t.Context(), config, "/registry", 5)
	if err != nil || !got.Met() {
		t.Errorf("CheckTransport() = %v, %v, want the floor met", got, err)
	}
	if dialed != "etcd.invalid:2379" {
		t.Errorf("dialed %q through the egress dialer", dialed)
	}
}

func TestHealthCheckOfRealEtcds(t *testing.T) {
	low, high := startEtcd(t, 1000), startEtcd(t, 2000)
	cases := map[string]struct {
		floor    int64
		wantFail bool
	}{
		"passes when all are at the floor":   {floor: 1000},
		"fails when one is below":            {floor: 1500, wantFail: true},
		"passes when the floor is disabled":  {floor: 0},
		"fails when all are below the floor": {floor: 3000, wantFail: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check := NewHealthCheck(tc.floor, "/registry", low, high, low)
			err := check.Check(httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
			if (err != nil) != tc.wantFail {
				t.Errorf("Check() = %v, want a failure: %t", err, tc.wantFail)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("Check() = %q, want one line", err)
			}
		})
	}
	if got := NewHealthCheck(1, "").Name(); got != "etcd-revision-floor" {
		t.Errorf("Name() = %s", got)
	}
}

func TestHealthCheckAsksSparingly(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	current, asked := int64(1), 0
	probe := func(_ context.Context, config storagebackend.TransportConfig) (Result, error) {
		asked++
		return Result{Servers: config.ServerList, Current: current, Floor: 10}, nil
	}
	check := newHealthCheck(10, clock, probe, []storagebackend.TransportConfig{{ServerList: []string{"a"}}})
	steps := []struct {
		name      string
		after     time.Duration
		current   int64
		wantErr   bool
		wantAsked int
	}{
		{name: "asked at first", current: 1, wantErr: true, wantAsked: 1},
		{name: "not asked within a second", after: probeInterval / 2, current: 10, wantErr: true, wantAsked: 1},
		{name: "asked again later", after: probeInterval, current: 10, wantAsked: 2},
		{name: "never asked again once met", after: time.Hour, current: 1, wantAsked: 2},
	}
	for _, step := range steps {
		clock.SetTime(clock.Now().Add(step.after))
		current = step.current
		err := check.Check(httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
		if (err != nil) != step.wantErr || asked != step.wantAsked {
			t.Errorf("%s: error %v, asked %d times, want an error: %t, asked %d times", step.name, err, asked, step.wantErr, step.wantAsked)
		}
	}
}

func TestHealthCheckOutlivesItsRequest(t *testing.T) {
	config := startEtcd(t, 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check := NewHealthCheck(10, "/registry", config)
	if err := check.Check(httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil)); err != nil {
		t.Errorf("Check() for a client that hung up = %v, want it to pass", err)
	}
}

func TestHealthCheckInParallel(t *testing.T) {
	check := NewHealthCheck(10, "/registry", startEtcd(t, 10))
	var group wait.Group
	for range 20 {
		group.Start(func() {
			if err := check.Check(httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)); err != nil {
				t.Errorf("Check() = %v", err)
			}
		})
	}
	group.Wait()
}
