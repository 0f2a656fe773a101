// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// view is what one other member has answered.
type view struct {
	name string
	// err is set when it did not answer.
	err error
	// cluster is what it belongs to, or will.
	cluster types.ID
	// empty members are seeded themselves; others are an etcd that knows members.
	empty   bool
	members []*membership.Member
}

type action int

const (
	wait action = iota
	create
	join
	refuse
)

// verdict is what is to be done with an empty directory.
type verdict struct {
	action action
	// reason is why it is refused.
	reason error
	// silent are those to wait for, with what came instead of an answer.
	silent []string
}

// decide follows the table of the package. One answer that this member has run outweighs all others.
func decide(self identity, views []view, dataDir string) verdict {
	result := verdict{action: create}
	joins := false
	for _, v := range views {
		if v.err != nil {
			result.silent = append(result.silent, fmt.Sprintf("%s (%v)", v.name, v.err))
			continue
		}
		if v.empty {
			if v.cluster != self.cluster {
				return refused("etcd member %s prepares another cluster than %s: give all members the same --initial-cluster and --initial-cluster-token", v.name, self.name)
			}
			continue
		}
		known := self.among(v.members)
		// What runs has what this member lacks, and has perhaps been restored with it: only the leader may fill the directory.
		joins = true
		switch {
		case known == nil:
			return refused("etcd member %s runs in a cluster that has no member at %s, and data directory %s is empty: add it with etcdctl member add %s --peer-urls=%[2]s",
				v.name, strings.Join(self.peerURLs, ","), dataDir, self.name)
		case len(known.ClientURLs) > 0:
			return refused("etcd member %s (%s) has run before and its data directory %s is empty: "+
				"remove it with etcdctl member remove %[2]s, then add it again with etcdctl member add %[1]s --peer-urls=%[4]s",
				self.name, known.ID, dataDir, strings.Join(self.peerURLs, ","))
		case known.ID == self.id && v.cluster != self.cluster:
			return refused("etcd member %s runs in another cluster than %s would: give all members the same --initial-cluster and --initial-cluster-token", v.name, self.name)
		}
	}
	switch {
	case joins:
		return verdict{action: join}
	case len(result.silent) > 0:
		result.action = wait
	}
	return result
}

func refused(format string, args ...any) verdict {
	return verdict{action: refuse, reason: fmt.Errorf(format, args...)}
}

// among finds this member in what another one knows: by its id, or, after it was added to a running cluster, by its address.
func (i identity) among(members []*membership.Member) *membership.Member {
	var added *membership.Member
	for _, member := range members {
		if member.ID == i.id {
			return member
		}
		if slices.ContainsFunc(member.PeerURLs, func(url string) bool { return slices.Contains(i.peerURLs, url) }) {
			added = member
		}
	}
	return added
}
