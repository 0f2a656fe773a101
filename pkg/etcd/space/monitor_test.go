// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeannex/annex/pkg/etcd/space/spacetest"
)

// watch runs a monitor, quickly, until the test ends.
func watch(t *testing.T, location Location) *Monitor {
	t.Helper()
	monitor := NewMonitor(location)
	monitor.period = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		monitor.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return monitor
}

func (m *Monitor) waitFull(t *testing.T, location Location, want bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		full, known := m.states()[location.name()]
		return known && full == want, nil
	})
	if err != nil {
		t.Fatalf("waiting for the monitor to say that etcd is full: %t: %v", want, err)
	}
}

func disarm(t *testing.T, client *clientv3.Client) {
	t.Helper()
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
}

// TestMonitorTells follows an etcd that others run: it is full until they have made room and disarmed the alarm.
func TestMonitorTells(t *testing.T) {
	client, stop := start(t, t.TempDir(), smallQuota)
	defer stop()
	location := Location{Client: client}
	monitor := watch(t, location)
	registry := metrics.NewKubeRegistry()
	if err := monitor.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	value := func(want string) {
		t.Helper()
		monitor.waitFull(t, location, want == "1")
		expected := "# HELP " + FullName + " [ALPHA] " + FullHelp + "\n# TYPE " + FullName + " gauge\n" +
			FullName + `{servers="` + location.name() + `"} ` + want + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(expected), FullName); err != nil {
			t.Error(err)
		}
	}
	value("0")
	spacetest.Write(t, client, distinct)
	value("1")
	deleteAndCompact(t, client)
	if _, err := defragment(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	value("1")
	disarm(t, client)
	value("0")
}

// TestMonitorMakesRoom lets the monitor of an embedded etcd make room when objects were deleted, which
// is possible although it is full, and leave it alone as long as nothing was.
func TestMonitorMakesRoom(t *testing.T) {
	client, stop := start(t, t.TempDir(), smallQuota)
	defer stop()
	spacetest.Fill(t, client, smallQuota, maxRequest)
	location := Location{Client: client, Limits: &Limits{Quota: smallQuota, Request: maxRequest}}
	monitor := watch(t, location)
	monitor.waitFull(t, location, true)
	if full, err := hasAlarm(t.Context(), client); err != nil || !full {
		t.Fatalf("the alarm is %t, %v, want it kept while there is no room", full, err)
	}
	if _, err := client.Delete(t.Context(), spacetest.Prefix, clientv3.WithPrefix()); err != nil {
		t.Fatalf("deleting in a full etcd: %v", err)
	}
	monitor.waitFull(t, location, false)
	if _, err := client.Put(t.Context(), "/after", strings.Repeat("x", largestValue)); err != nil {
		t.Errorf("writing after that: %v", err)
	}
}
