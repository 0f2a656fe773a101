// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seed makes the data directory of a member of a new etcd cluster, born
// at the revision floor, and of nothing else.
//
// A member that has run and lost its directory must not begin again under its old
// identity: it would have forgotten for whom it voted and which writes it
// acknowledged, and a majority that counts on it could drop them. No file says
// whether a directory is new or lost, so the other members are asked. While it
// waits, and until the others have heard it, a member answers on its peer address
// that it is empty; an etcd answers there with the members that it knows. A directory is made only when every other member
// has said that it is empty as well. Beside an etcd that runs, which was perhaps restored from a backup, an empty
// database would be taken for a copy of a full one:
//
//	directory has a member             nothing to do
//	the only member of its cluster     make it
//	another says that this one ran     refuse: to be removed and added again
//	another does not know this one     refuse: to be added
//	another runs, this one never has   leave it empty: etcd joins by itself
//	all others are empty               make it
//	some do not answer                 wait
//
// An etcd started afterwards is given --initial-cluster-state=existing in every
// case: it then joins or goes on, and never founds a cluster.
package seed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
)

const (
	// askInterval is the pause between two rounds of questions.
	askInterval = time.Second
	// farewell bounds how long a member that knows enough goes on answering others.
	farewell = 5 * time.Second
	// waitingInterval is how often it is logged for whom a member waits.
	waitingInterval = 10 * time.Second
)

// Options describe a member. Those that have a flag of etcd's are called like it.
type Options struct {
	// DataDir is the member's directory. It must not be a mount point: it appears by a rename.
	DataDir string
	// Name is the member's name, unique in InitialCluster.
	Name string
	// InitialCluster is name=url,... of all members.
	InitialCluster string
	// InitialClusterToken makes member ids of two clusters with equal addresses different.
	InitialClusterToken string
	// AdvertisePeerURLs are the member's own addresses in InitialCluster.
	AdvertisePeerURLs []string
	// ListenPeerURLs are where the member tells the others that it is empty. Not needed by an only member.
	ListenPeerURLs []string
	// PeerTLS is the certificate for both directions, and its authority. It is needed for https.
	PeerTLS transport.TLSInfo
	// RevisionFloor is the revision at which the cluster is born.
	RevisionFloor int64
}

// Validate returns everything that is wrong with the options.
func (o Options) Validate() []error {
	var errs []error
	for flag, value := range map[string]string{
		"data-dir": o.DataDir, "name": o.Name, "initial-cluster": o.InitialCluster, "initial-cluster-token": o.InitialClusterToken,
		"initial-advertise-peer-urls": strings.Join(o.AdvertisePeerURLs, ","),
	} {
		if value == "" {
			errs = append(errs, fmt.Errorf("--%s is empty: give it as to etcd", flag))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if o.RevisionFloor < 1 {
		errs = append(errs, fmt.Errorf("--revision-floor is %d: it must be at least 1", o.RevisionFloor))
	}
	self, err := o.identify()
	if err != nil {
		return append(errs, err)
	}
	if len(self.others) > 0 && len(o.ListenPeerURLs) == 0 {
		errs = append(errs, errors.New("--listen-peer-urls is empty: members of a cluster tell each other there that they are new"))
	}
	if secure(o.AdvertisePeerURLs, o.ListenPeerURLs) && (o.PeerTLS.Empty() || o.PeerTLS.TrustedCAFile == "") {
		errs = append(errs, errors.New("peer addresses are https: give --peer-cert-file, --peer-key-file and --peer-trusted-ca-file"))
	}
	return errs
}

func secure(lists ...[]string) bool {
	for _, urls := range lists {
		for _, url := range urls {
			if strings.HasPrefix(url, "https://") {
				return true
			}
		}
	}
	return false
}

// identity is who a member is, as etcd computes it (go.etcd.io/etcd/server/v3/etcdserver/api/membership).
type identity struct {
	name     string
	id       types.ID
	cluster  types.ID
	peerURLs []string
	// others are the other members of the initial cluster.
	others []*membership.Member
}

func (o Options) identify() (identity, error) {
	urls, err := types.NewURLsMap(o.InitialCluster)
	if err != nil {
		return identity{}, fmt.Errorf("--initial-cluster is %q: %w: write it as name=url,name=url", o.InitialCluster, err)
	}
	own, err := types.NewURLs(o.AdvertisePeerURLs)
	if err != nil {
		return identity{}, fmt.Errorf("--initial-advertise-peer-urls: %w", err)
	}
	// Etcd would look host names up to compare them. They need not be known yet when a member is new.
	if listed := urls[o.Name]; listed.String() != own.String() {
		return identity{}, fmt.Errorf("--initial-cluster gives %s the address %q and --initial-advertise-peer-urls %q: make them equal", o.Name, listed, own)
	}
	cluster, err := membership.NewClusterFromURLsMap(zap.NewNop(), o.InitialClusterToken, urls)
	if err != nil {
		return identity{}, fmt.Errorf("--initial-cluster is %q: %w", o.InitialCluster, err)
	}
	self := identity{name: o.Name, id: cluster.MemberByName(o.Name).ID, cluster: cluster.ID(), peerURLs: own.StringSlice()}
	for _, member := range cluster.Members() {
		if member.Name != o.Name {
			self.others = append(self.others, member)
		}
	}
	return self, nil
}

// Run makes the data directory if the member is new, and returns when etcd can be started. It waits for the other
// members until ctx ends. Options must be valid.
func Run(ctx context.Context, options Options) error {
	logger := klog.FromContext(ctx).WithValues("member", options.Name, "dataDir", options.DataDir)
	if wal.Exist(datadir.ToWALDir(options.DataDir)) {
		logger.Info("Nothing to do: the etcd data directory has a member")
		return nil
	}
	self, err := options.identify()
	if err != nil {
		return err
	}
	answer := verdict{action: create}
	if len(self.others) > 0 {
		if answer, err = options.consult(ctx, self); err != nil {
			return err
		}
	}
	switch answer.action {
	case join:
		logger.Info("Nothing to do: the member was added to a running cluster, which etcd will join with the empty data directory")
		return nil
	case refuse:
		return answer.reason
	}
	err = embedded.Seed(ctx, options.DataDir, options.RevisionFloor, embedded.Member{
		Name: options.Name, PeerURLs: options.AdvertisePeerURLs,
		InitialCluster: options.InitialCluster, ClusterToken: options.InitialClusterToken,
	})
	if err != nil {
		return fmt.Errorf("%w: --data-dir must be missing or empty, and a folder below the volume's mount point", err)
	}
	logger.Info("Made the data directory of a new etcd cluster", "revision", options.RevisionFloor, "cluster", self.cluster.String(), "memberID", self.id.String())
	return nil
}

// consult asks the other members, and answers them, until there is a verdict.
func (o Options) consult(ctx context.Context, self identity) (verdict, error) {
	asker, err := newAsker(o.Name, o.PeerTLS)
	if err != nil {
		return verdict{}, err
	}
	defer asker.close()
	server, err := announce(ctx, o.ListenPeerURLs, o.PeerTLS, self.cluster)
	if err != nil {
		return verdict{}, err
	}
	defer server.close(ctx)

	logger := klog.FromContext(ctx).WithValues("member", o.Name)
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	var said, decided time.Time
	// What another member has said of this one stays true as long as this process waits.
	views := make([]view, len(self.others))
	for {
		for i, answer := range asker.askAll(ctx, self.others) {
			if answer.err == nil || views[i].name == "" || views[i].err != nil {
				views[i] = answer
			}
		}
		answer := decide(self, views, o.DataDir)
		switch {
		case answer.action == create:
			// The others need to hear that this one is empty as much as it needed to hear it of them.
			if decided.IsZero() {
				decided = time.Now()
			}
			if server.toldAll(emptyOnes(views)) || time.Since(decided) > farewell {
				return answer, nil
			}
		case answer.action != wait:
			return answer, nil
		case time.Since(said) >= waitingInterval:
			said = time.Now()
			logger.Info("Waiting for the other members of the new etcd cluster", "silent", answer.silent)
		}
		select {
		case <-ctx.Done():
			return verdict{}, fmt.Errorf("waiting for etcd members %s: %w: start them, all members of a new cluster wait for each other",
				strings.Join(answer.silent, ", "), context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// emptyOnes are the names of those that are no etcd yet.
func emptyOnes(views []view) []string {
	var names []string
	for _, v := range views {
		if v.empty {
			names = append(names, v.name)
		}
	}
	return names
}
