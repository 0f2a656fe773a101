// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"

	"github.com/kubeannex/annex/test/env/ports"
)

func TestMain(m *testing.M) {
	// As in package embedded: log files of 64 MiB would make most of the run time.
	wal.SegmentSizeBytes = 256 << 10
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const floor = int64(1) << 50

// options of member number i of a cluster at the given addresses.
func options(t *testing.T, i int, addresses ...string) Options {
	t.Helper()
	var cluster []string
	for n, address := range addresses {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", n, address))
	}
	own := []string{"http://" + addresses[i]}
	return Options{
		DataDir: filepath.Join(t.TempDir(), "data"), Name: fmt.Sprintf("m%d", i), InitialCluster: strings.Join(cluster, ","), InitialClusterToken: "token",
		AdvertisePeerURLs: own, ListenPeerURLs: own, RevisionFloor: floor,
	}
}

func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		addresses = append(addresses, ports.FreeAddress(t))
	}
	return addresses
}

func TestVerdicts(t *testing.T) {
	o := options(t, 2, "a.test:2380", "b.test:2380", "c.test:2380")
	self, err := o.identify()
	if err != nil {
		t.Fatal(err)
	}
	empty := func(name string) view { return view{name: name, cluster: self.cluster, empty: true} }
	silent := func(name string) view { return view{name: name, err: errors.New("connection refused")} }
	running := func(name string, members ...*membership.Member) view {
		return view{name: name, cluster: self.cluster, members: members}
	}
	member := func(id types.ID, url string, clientURLs ...string) *membership.Member {
		return &membership.Member{ID: id, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{url}}, Attributes: membership.Attributes{ClientURLs: clientURLs}}
	}
	a, own := member(1, "http://a.test:2380", "http://a.test:2379"), "http://c.test:2380"
	other := running("m0", a, member(self.id, own))
	other.cluster++

	cases := map[string]struct {
		views []view
		want  action
		// says is what the refusal has to name.
		says []string
	}{
		"all others are empty":                       {views: []view{empty("m0"), empty("m1")}, want: create},
		"one is away":                                {views: []view{empty("m0"), silent("m1")}, want: wait},
		"all are away":                               {views: []view{silent("m0"), silent("m1")}, want: wait},
		"one runs, and this one never has":           {views: []view{running("m0", a, member(self.id, own)), empty("m1")}, want: join},
		"one runs, and another is away":              {views: []view{running("m0", a, member(self.id, own)), silent("m1")}, want: join},
		"it was added to a running cluster":          {views: []view{running("m0", a, member(7, own)), running("m1", a, member(7, own))}, want: join},
		"it was added, and another is away":          {views: []view{running("m0", a, member(7, own)), silent("m1")}, want: join},
		"it was added, but one says that it ran":     {views: []view{running("m0", a, member(7, own)), running("m1", a, member(self.id, own, "http://c.test:2379"))}, want: refuse},
		"it has run":                                 {views: []view{empty("m0"), running("m1", a, member(self.id, own, "http://c.test:2379"))}, want: refuse, says: []string{"has run before", "member remove " + self.id.String(), "member add m2 --peer-urls=" + own}},
		"it has run, and another is away":            {views: []view{silent("m0"), running("m1", a, member(self.id, own, "http://c.test:2379"))}, want: refuse},
		"it was added and has run":                   {views: []view{running("m0", a, member(7, own, "http://c.test:2379")), empty("m1")}, want: refuse, says: []string{"member remove 7"}},
		"it was removed":                             {views: []view{running("m0", a), silent("m1")}, want: refuse, says: []string{"no member at " + own, "member add m2 --peer-urls=" + own}},
		"another prepares a different cluster":       {views: []view{{name: "m0", cluster: 5, empty: true}, silent("m1")}, want: refuse, says: []string{"m0 prepares another cluster", "--initial-cluster-token"}},
		"another runs in a cluster of other members": {views: []view{other, empty("m1")}, want: refuse, says: []string{"m0 runs in another cluster"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decide(self, tc.views, o.DataDir)
			if got.action != tc.want {
				t.Errorf("action %d, want %d (reason: %v)", got.action, tc.want, got.reason)
			}
			if (got.action == refuse) != (got.reason != nil) {
				t.Errorf("action %d with the reason %v", got.action, got.reason)
			}
			for _, text := range tc.says {
				if !strings.Contains(got.reason.Error(), text) {
					t.Errorf("the reason is %q, want %q in it", got.reason, text)
				}
			}
			if got.reason != nil && strings.Contains(got.reason.Error(), "\n") {
				t.Errorf("the reason has more than one line: %q", got.reason)
			}
		})
	}
}

func TestMembersWaitForEachOther(t *testing.T) {
	addresses := freeAddresses(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	var all []Options
	for i := range addresses {
		all = append(all, options(t, i, addresses...))
	}
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		group.Go(func() { errs[i] = Run(ctx, all[i]) })
	}
	ask, err := newAsker("stranger", all[2].PeerTLS)
	if err != nil {
		t.Fatal(err)
	}
	third, err := all[2].identify()
	if err != nil {
		t.Fatal(err)
	}
	for waits := false; !waits; {
		views := ask.askAll(t.Context(), third.others)
		waits = !slices.ContainsFunc(views, func(v view) bool { return v.err != nil })
	}
	cancel()
	group.Wait()
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "m2 (") || strings.Contains(err.Error(), "\n") {
			t.Errorf("member %d ends with %v, want one line that it waited for m2", i, err)
		}
		if _, err := os.Stat(all[i].DataDir); !os.IsNotExist(err) {
			t.Errorf("member %d has a data directory (%v)", i, err)
		}
	}
}

// TestMembersHearEachOther demands that nobody needs the etcd of another one, which may take long to start.
func TestMembersHearEachOther(t *testing.T) {
	addresses := freeAddresses(t, 3)
	var group sync.WaitGroup
	for i := range addresses {
		o := options(t, i, addresses...)
		group.Go(func() {
			if err := Run(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestAnOnlyMemberWaitsForNobody(t *testing.T) {
	o := options(t, 0, "127.0.0.1:2380")
	o.ListenPeerURLs = nil
	for range 2 {
		if err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if !wal.Exist(filepath.Join(o.DataDir, "member", "wal")) {
		t.Error("there is no member")
	}
}

func TestRefusesFlags(t *testing.T) {
	cases := map[string]struct {
		change func(o *Options)
		want   []string
	}{
		"no flags":                   {change: func(o *Options) { *o = Options{} }, want: []string{"--data-dir", "--initial-advertise-peer-urls", "--initial-cluster", "--initial-cluster-token", "--name"}},
		"a name that is unknown":     {change: func(o *Options) { o.Name = "x" }, want: []string{"--initial-cluster"}},
		"another address":            {change: func(o *Options) { o.AdvertisePeerURLs = []string{"http://d.test:2380"} }, want: []string{"--initial-cluster"}},
		"no list of members":         {change: func(o *Options) { o.InitialCluster = "m2" }, want: []string{"--initial-cluster"}},
		"an address without a port":  {change: func(o *Options) { o.AdvertisePeerURLs = []string{"http://c.test"} }, want: []string{"--initial-advertise-peer-urls"}},
		"nowhere to listen":          {change: func(o *Options) { o.ListenPeerURLs = nil }, want: []string{"--listen-peer-urls"}},
		"no floor":                   {change: func(o *Options) { o.RevisionFloor = 0 }, want: []string{"--revision-floor"}},
		"https without certificates": {change: func(o *Options) { o.ListenPeerURLs = []string{"https://c.test:2380"} }, want: []string{"--peer-cert-file"}},
		"certificates without an authority": {change: func(o *Options) {
			o.ListenPeerURLs = []string{"https://c.test:2380"}
			o.PeerTLS.CertFile, o.PeerTLS.KeyFile = "x", "x"
		}, want: []string{"--peer-cert-file"}},
		"nothing wrong": {change: func(*Options) {}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t, 2, "a.test:2380", "b.test:2380", "c.test:2380")
			tc.change(&o)
			var got []string
			for _, err := range o.Validate() {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("more than one line: %q", err)
				}
				got = append(got, firstFlag(err.Error()))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("flags named first (-want +got):\n%s", diff)
			}
		})
	}
}

// firstFlag is the first word that begins with two dashes.
func firstFlag(text string) string {
	index := strings.Index(text, "--")
	if index < 0 {
		return text
	}
	return strings.TrimRight(strings.Fields(text[index:])[0], ":,")
}

func TestAddressInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the test ends
	o := options(t, 0, listener.Addr().String(), "127.0.0.1:1")
	err = Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "correct --listen-peer-urls") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Run() = %v, want one line that names --listen-peer-urls", err)
	}
}
