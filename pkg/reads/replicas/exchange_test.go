// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/etcd/space/spacetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// counted is a source that has one client.
type counted struct {
	client  string
	scanned int64
}

func (c counted) Profiles() *kubeannex.ListProfileList {
	return &kubeannex.ListProfileList{
		Since: metav1.Unix(1000, 0), Dropped: 1,
		Items: []kubeannex.ListProfile{{
			ObjectMeta: metav1.ObjectMeta{Name: "n-" + c.client},
			Profile:    kubeannex.ListProfileRow{Client: c.client, Verb: "list", Count: 1, Scanned: c.scanned},
		}},
	}
}

// startEtcd returns a way to an etcd of the test and a client of it.
func startEtcd(t *testing.T, quota int64) (*embedded.Server, storagebackend.TransportConfig, *clientv3.Client) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{RootDir: t.TempDir(), QuotaBackendBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	transport := storagebackend.TransportConfig{ServerList: server.Endpoints()}
	client, err := etcdclient.New(context.WithoutCancel(t.Context()), transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return server, transport, client
}

// start runs an exchange and waits until it is registered. The returned function stops it.
func start(t *testing.T, options Options) (*Exchange, func()) {
	t.Helper()
	e := New(options)
	e.reuse = 0
	stop := run(t, e)
	eventually(t, "the registration", func() bool { return e.linked().lease != 0 })
	return e, stop
}

func run(t *testing.T, e *Exchange) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// seen is what matters of a list: the client of each row and what it scanned.
func seen(list *kubeannex.ListProfileList) []string {
	var rows []string
	for _, item := range list.Items {
		rows = append(rows, fmt.Sprintf("%s %d", item.Profile.Client, item.Profile.Scanned))
	}
	return rows
}

func revision(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	got, err := client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.GetRevision()
}

func TestAllAnswer(t *testing.T) {
	_, transport, client := startEtcd(t, 0)
	a, _ := start(t, Options{Transport: transport, Prefix: "/registry", Name: "host-a", Source: counted{"agent", 100}})
	registered := revision(t, client)
	list, warning := a.Profiles(t.Context())
	if diff := cmp.Diff([]string{"agent 100"}, seen(list)); diff != "" || warning != "" || list.Replica != "host-a" {
		t.Errorf("alone: replica %q, warning %q, rows (-want +got):\n%s", list.Replica, warning, diff)
	}
	if now := revision(t, client); now != registered {
		t.Errorf("a process that is alone has written %d times", now-registered)
	}

	// A server with another prefix is none of the replicas.
	start(t, Options{Transport: transport, Prefix: "/registry/replicas", Name: "stranger", Source: counted{"stranger", 1}})
	start(t, Options{Transport: transport, Prefix: "registry", Name: "host-b", Source: counted{"flood", 5000}})
	c, stopC := start(t, Options{Transport: transport, Prefix: "/registry", Name: "host-c", Source: counted{"agent", 11}})
	want := &kubeannex.ListProfileList{Replica: "host-a", Replicas: []string{"host-a", "host-b", "host-c"}, Since: metav1.Unix(1000, 0), Dropped: 3}
	before := revision(t, client)
	list, warning = a.Profiles(t.Context())
	if wrote := revision(t, client) - before; wrote != 3 {
		t.Errorf("one question and two answers took %d writes, want 3", wrote)
	}
	if diff := cmp.Diff([]string{"flood 5000", "agent 111"}, seen(list)); diff != "" || warning != "" {
		t.Errorf("warning %q, rows (-want +got):\n%s", warning, diff)
	}
	list.Items = nil
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if list, _ = c.Profiles(t.Context()); list.Replica != "host-c" || len(list.Replicas) != 3 {
		t.Errorf("asked at the last, %s answers for %v", list.Replica, list.Replicas)
	}
	// Who stops takes leave.
	stopC()
	if list, warning = a.Profiles(t.Context()); len(list.Replicas) != 2 || warning != "" {
		t.Errorf("after one has stopped %v answer, with warning %q", list.Replicas, warning)
	}
	keys, err := client.Get(t.Context(), root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		if kv.Lease == 0 || strings.Contains(string(kv.Key), c.id) {
			t.Errorf("%s is left, with lease %x", kv.Key, kv.Lease)
		}
	}
}

func TestAnswersAreSharedForAWhile(t *testing.T) {
	_, transport, client := startEtcd(t, 0)
	a, _ := start(t, Options{Transport: transport, Name: "a", Source: counted{"agent", 1}})
	start(t, Options{Transport: transport, Name: "b", Source: counted{"agent", 1}})
	a.reuse = time.Hour
	before := revision(t, client)
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if list, warning := a.Profiles(t.Context()); len(list.Replicas) != 2 || warning != "" {
				t.Errorf("%v answer, with warning %q", list.Replicas, warning)
			}
		})
	}
	asking.Wait()
	if wrote := revision(t, client) - before; wrote != 2 {
		t.Errorf("20 who ask at once took %d writes, want one question and one answer", wrote)
	}
}

func TestOneThatWasKilledIsNamedUntilItsLeaseEnds(t *testing.T) {
	_, transport, client := startEtcd(t, 0)
	a, _ := start(t, Options{Transport: transport, Name: "host", Source: counted{"agent", 1}})
	a.patience = 100 * time.Millisecond
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	// It has the same name, being on the same host, and had answered an earlier question.
	for kind, value := range map[string]any{kindReplica: replica{Name: "host"}, kindAnswer: answer{Asked: 1}} {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), a.key(kind, "dead"), string(encoded), clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	list, warning := a.Profiles(t.Context())
	if want := "the reads of host_dead are missing: no answer within 100ms; one that was killed is forgotten after 15s"; warning != want {
		t.Errorf("got the warning\n%q, want\n%q", warning, want)
	}
	if diff := cmp.Diff([]string{"host_dead"}, list.Missing); diff != "" || len(list.Items) != 1 {
		t.Errorf("%d rows, missing (-want +got):\n%s", len(list.Items), diff)
	}
	if _, err := client.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	if list, warning := a.Profiles(t.Context()); warning != "" || list.Missing != nil {
		t.Errorf("after the lease: missing %v, warning %q", list.Missing, warning)
	}
}

func TestLostLeaseIsRenewed(t *testing.T) {
	_, transport, client := startEtcd(t, 0)
	a, _ := start(t, Options{Transport: transport, Name: "a", Source: counted{"agent", 1}})
	b := New(Options{Transport: transport, Name: "b", Source: counted{"agent", 1}})
	b.leaseTTL = 3 * time.Second
	run(t, b)
	eventually(t, "the registration", func() bool { return b.linked().lease != 0 })
	lost := b.linked().lease
	if _, err := client.Revoke(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new lease", func() bool { lease := b.linked().lease; return lease != 0 && lease != lost })
	if list, warning := a.Profiles(t.Context()); len(list.Replicas) != 2 || warning != "" {
		t.Errorf("%v answer, with warning %q", list.Replicas, warning)
	}
}

// TestFullEtcd shows that an etcd without room costs the reads of others only, and
// that it is said which, also by a process that could not even register.
func TestFullEtcd(t *testing.T) {
	_, transport, client := startEtcd(t, 8<<20)
	a, _ := start(t, Options{Transport: transport, Name: "a", Source: counted{"agent", 1}})
	start(t, Options{Transport: transport, Name: "b", Source: counted{"agent", 1}})
	spacetest.Write(t, client, func(i int) string { return fmt.Sprint(i) })
	list, warning := a.Profiles(t.Context())
	if want := "the reads of b are missing: asking by etcd: etcdserver: mvcc: database space exceeded: make room in etcd"; warning != want {
		t.Errorf("got the warning\n%q, want\n%q", warning, want)
	}
	if diff := cmp.Diff([]string{"agent 1"}, seen(list)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	late := New(Options{Transport: transport, Name: "late", Source: counted{"late", 7}})
	late.reuse = 0
	run(t, late)
	eventually(t, "an attempt to register", func() bool {
		_, warning = late.Profiles(t.Context())
		return strings.Contains(warning, "space exceeded")
	})
	if want := "the reads of a, b are missing: getting a lease of etcd: etcdserver: mvcc: database space exceeded: make room in etcd"; warning != want {
		t.Errorf("got the warning\n%q, want\n%q", warning, want)
	}
	if list, _ := late.Profiles(t.Context()); len(list.Items) != 1 || len(list.Replicas) != 1 {
		t.Errorf("the one that is not registered shows %v of %v", seen(list), list.Replicas)
	}
}

func TestEtcdDown(t *testing.T) {
	server, transport, _ := startEtcd(t, 0)
	a, _ := start(t, Options{Transport: transport, Name: "a", Source: counted{"agent", 1}})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	list, warning := a.Profiles(t.Context())
	if !strings.HasPrefix(warning, "these are the reads of replica a alone, others cannot be seen: looking for other replicas: ") || len(list.Items) != 1 {
		t.Errorf("got %d rows and the warning %q", len(list.Items), warning)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if list, _ = a.Profiles(canceled); len(list.Items) != 1 {
		t.Errorf("got %d rows for a client that has left, want its own", len(list.Items))
	}
	// What that client has begun ends by itself.
	a.Profiles(t.Context())
}

// TestAnswerFitsIntoARequest encodes the longest rows there can be.
func TestAnswerFitsIntoARequest(t *testing.T) {
	long := func(n int) string { return strings.Repeat("<", n) } // JSON takes 6 bytes for each
	e := New(Options{Name: "a", Source: many{rows: 2000, text: long}})
	value, err := e.encode(1 << 62)
	if err != nil {
		t.Fatal(err)
	}
	const etcdDefault = 3 << 19
	if len(value) > etcdDefault {
		t.Errorf("an answer takes %d bytes, and etcd refuses more than %d", len(value), etcdDefault)
	}
	t.Logf("%d bytes", len(value))
}

// many is a source with rows of the longest texts.
type many struct {
	rows int
	text func(bytes int) string
}

func (m many) Profiles() *kubeannex.ListProfileList {
	list := &kubeannex.ListProfileList{}
	for i := range m.rows {
		list.Items = append(list.Items, kubeannex.ListProfile{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%020d", i), CreationTimestamp: metav1.Unix(1<<31, 0)},
			Profile: kubeannex.ListProfileRow{
				Client: m.text(64), ClientVersion: m.text(32), User: m.text(339), Verb: "watch", Group: strings.Repeat("g", 253),
				Version: strings.Repeat("v", 63), Resource: fmt.Sprintf("%063d/status", i), Selector: m.text(128), Source: kubeannex.ListSourceCache, Index: "f:" + m.text(64),
				Count: 1 << 62, Failed: 1 << 62, Scanned: 1<<62 - int64(i), Returned: 1 << 62, Bytes: 1 << 62, LastSeen: metav1.Unix(1<<31, 0),
			},
		})
	}
	return list
}
