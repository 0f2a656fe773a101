// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// Profiles returns the table, the row that scanned the most first, and of those
// that scanned as much the one that sent the most. The caller owns the result; its
// replica and replicas are left empty.
func (t *Tracker) Profiles() *kubeannex.ListProfileList {
	rows, dropped := t.table.snapshot()
	result := &kubeannex.ListProfileList{
		Since:   metav1.NewTime(t.table.since),
		Dropped: dropped,
		Items:   make([]kubeannex.ListProfile, 0, len(rows)),
	}
	for _, r := range rows {
		result.Items = append(result.Items, r.profile())
	}
	sortWorst(result.Items)
	return result
}

// sortWorst puts the profile first that scanned the most, and of those that scanned
// as much the one that sent the most.
func sortWorst(profiles []kubeannex.ListProfile) {
	slices.SortFunc(profiles, func(a, b kubeannex.ListProfile) int {
		return cmp.Or(
			cmp.Compare(b.Profile.Scanned, a.Profile.Scanned),
			cmp.Compare(b.Profile.Bytes, a.Profile.Bytes),
			cmp.Compare(b.Profile.Count, a.Profile.Count),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func (r *row) profile() kubeannex.ListProfile {
	return kubeannex.ListProfile{
		ObjectMeta: metav1.ObjectMeta{Name: r.key.name(), CreationTimestamp: metav1.NewTime(time.Unix(0, r.first.Load()))},
		Profile: kubeannex.ListProfileRow{
			Client: r.key.client, ClientVersion: r.clientVersion(), User: r.key.user,
			Verb: r.key.verb, Group: r.key.group, Version: r.key.version, Resource: r.key.resource,
			Selector: r.key.selector, Source: r.key.source, Index: r.key.index,
			Count: r.reads.Load(), Failed: r.failed.Load(),
			Scanned: r.scanned.Load(), Returned: r.returned.Load(), Bytes: r.bytes.Load(),
			LastSeen: metav1.NewTime(time.Unix(0, r.lastSeen.Load())),
		},
	}
}

// nameBytes is how much of the digest is in a name: enough to tell apart any
// number of rows that fit into memory.
const nameBytes = 10

// name is a digest of the key. No part of a key has a zero byte.
func (k key) name() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{
		k.client, k.user, k.verb, k.group, k.version, k.resource, k.selector, string(k.source), k.index,
	}, "\x00")))
	return hex.EncodeToString(sum[:nameBytes])
}
