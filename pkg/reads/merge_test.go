// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// profileOf is a profile as a process tells it, with a cost of count requests that
// scan a number of objects.
func profileOf(client, version string, seen, count, scanned int64) kubeannex.ListProfile {
	k := key{client: client, user: "u-" + client, verb: "list", group: "g", version: "v1", resource: "widgets"}
	if client == othersClient {
		k = k.others()
	}
	return kubeannex.ListProfile{
		ObjectMeta: metav1.ObjectMeta{Name: k.name(), CreationTimestamp: metav1.Unix(seen-100, 0)},
		Profile: kubeannex.ListProfileRow{
			Client: k.client, ClientVersion: version, User: k.user, Verb: k.verb, Group: k.group, Version: k.version, Resource: k.resource,
			Count: count, Failed: 1, Scanned: scanned, Returned: 2, Bytes: 3, LastSeen: metav1.Unix(seen, 0),
		},
	}
}

func TestMerge(t *testing.T) {
	first := &kubeannex.ListProfileList{
		Replicas: []string{"a"}, Since: metav1.Unix(50, 0), Dropped: 3,
		Items: []kubeannex.ListProfile{profileOf("agent", "v1", 1000, 10, 500), profileOf("kubectl", "v1", 1000, 1, 5)},
	}
	second := &kubeannex.ListProfileList{
		Replicas: []string{"b"}, Since: metav1.Unix(40, 0), Dropped: 4,
		Items: []kubeannex.ListProfile{profileOf("agent", "v2", 1001, 20, 600), profileOf("operator", "v1", 900, 1, 2000)},
	}
	silent := &kubeannex.ListProfileList{Replicas: []string{"c"}}
	before := first.DeepCopy()

	both := profileOf("agent", "v2", 1001, 30, 1100)
	both.CreationTimestamp = metav1.Unix(900, 0)
	both.Profile.Failed, both.Profile.Returned, both.Profile.Bytes = 2, 4, 6
	want := &kubeannex.ListProfileList{
		Replicas: []string{"a", "b", "c"}, Since: metav1.Unix(40, 0), Dropped: 7,
		Items: []kubeannex.ListProfile{profileOf("operator", "v1", 900, 1, 2000), both, profileOf("kubectl", "v1", 1000, 1, 5)},
	}
	if diff := cmp.Diff(want, Merge(first, second, silent)); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, first); diff != "" {
		t.Errorf("the argument has changed (-before +after):\n%s", diff)
	}
	if empty := Merge(silent); empty.Items == nil || len(empty.Items) != 0 {
		t.Errorf("got items %v of a process that has seen nothing, want an empty list", empty.Items)
	}
}

func TestShortenKeepsTheWorstAndAllSums(t *testing.T) {
	list := &kubeannex.ListProfileList{Dropped: 5}
	for i := range int64(10) {
		list.Items = append(list.Items, profileOf(fmt.Sprintf("c%d", i), "v1", 1000+i, 1, 100*i))
	}
	// It scans nothing, but asks often.
	list.Items = append(list.Items, profileOf("poller", "v1", 2000, 850, 0), profileOf(othersClient, "", 500, 4, 4))
	Shorten(list, 3)
	others := profileOf(othersClient, "", 1007, 4+8, 4+2800)
	others.CreationTimestamp = metav1.Unix(400, 0)
	others.Profile.Failed, others.Profile.Returned, others.Profile.Bytes = 9, 18, 27
	want := &kubeannex.ListProfileList{
		Dropped: 5 + 8,
		Items:   []kubeannex.ListProfile{others, profileOf("c9", "v1", 1009, 1, 900), profileOf("c8", "v1", 1008, 1, 800), profileOf("poller", "v1", 2000, 850, 0)},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("shortened (-want +got):\n%s", diff)
	}
}

func TestShortenBoundsOthers(t *testing.T) {
	list := &kubeannex.ListProfileList{}
	for i := range 10 {
		profile := profileOf("agent", "v1", 1000, 1, 1)
		profile.Name, profile.Profile.Resource = fmt.Sprintf("n%d", i), fmt.Sprintf("r%d", i)
		list.Items = append(list.Items, profile)
	}
	Shorten(list, 2)
	if len(list.Items) != 4 || list.Dropped != 8 {
		t.Errorf("got %d profiles and %d dropped, want 2 with 2 sums and 8", len(list.Items), list.Dropped)
	}
}
