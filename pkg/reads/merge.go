// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// Merge adds up what several processes have seen, as Profiles returns it: profiles
// of one name are one. The arguments stay as they are.
func Merge(lists ...*kubeannex.ListProfileList) *kubeannex.ListProfileList {
	merged := &kubeannex.ListProfileList{Items: []kubeannex.ListProfile{}}
	places := map[string]int{}
	for _, list := range lists {
		merged.Replicas = append(merged.Replicas, list.Replicas...)
		merged.Since = earlier(merged.Since, list.Since)
		merged.Dropped += list.Dropped
		for _, profile := range list.Items {
			if place, ok := places[profile.Name]; ok {
				addTo(&merged.Items[place], &profile)
				continue
			}
			places[profile.Name] = len(merged.Items)
			merged.Items = append(merged.Items, profile)
		}
	}
	sortWorst(merged.Items)
	return merged
}

// Shorten leaves at most limit profiles of a list, those that have cost the most. The
// rest is added to those of the client "(others)" and counted as dropped. Of these
// too at most limit are left.
func Shorten(list *kubeannex.ListProfileList, limit int) {
	slices.SortFunc(list.Items, func(a, b kubeannex.ListProfile) int {
		return cmp.Or(cmp.Compare(costOf(&b.Profile), costOf(&a.Profile)), cmp.Compare(a.Name, b.Name))
	})
	var left, others []kubeannex.ListProfile
	for _, profile := range list.Items {
		switch {
		case profile.Profile.Client == othersClient:
			others = append(others, profile)
		case len(left) < limit:
			left = append(left, profile)
		default:
			list.Dropped++
			others = append(others, othersOf(profile))
		}
	}
	others = Merge(&kubeannex.ListProfileList{Items: others}).Items
	list.Items = append(left, others[:min(len(others), limit)]...)
	sortWorst(list.Items)
}

// costOf is the cost of a row, see there, as far as it is known from outside.
func costOf(row *kubeannex.ListProfileRow) int64 {
	return row.Scanned + row.Bytes/bytesPerObject + row.Count
}

// othersOf is what a profile is as a part of that of the others.
func othersOf(profile kubeannex.ListProfile) kubeannex.ListProfile {
	row := &profile.Profile
	into := key{verb: row.Verb, group: row.Group, version: row.Version, resource: row.Resource}.others()
	profile.Name = into.name()
	row.Client, row.ClientVersion, row.User = into.client, "", ""
	row.Selector, row.Source, row.Index = "", "", ""
	return profile
}

func addTo(sum, profile *kubeannex.ListProfile) {
	into, row := &sum.Profile, &profile.Profile
	sum.CreationTimestamp = earlier(sum.CreationTimestamp, profile.CreationTimestamp)
	into.Count += row.Count
	into.Failed += row.Failed
	into.Scanned += row.Scanned
	into.Returned += row.Returned
	into.Bytes += row.Bytes
	if into.LastSeen.Before(&row.LastSeen) {
		into.LastSeen, into.ClientVersion = row.LastSeen, row.ClientVersion
	}
}

// earlier ignores a time that is not known.
func earlier(a, b metav1.Time) metav1.Time {
	if a.IsZero() || !b.IsZero() && b.Before(&a) {
		return b
	}
	return a
}
