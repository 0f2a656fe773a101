// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// TestHostRules writes down what each release does, and from when on. The
// source is what shouldDelegateList, later ShouldDelegateList, of the release says:
//
//	1.24.17, 1.27.16, 1.28.15, 1.30.14, 1.31.14, 1.32.0  pkg/storage/cacher/cacher.go
//	1.33.0, 1.34.3, 1.37.2  pkg/storage/cacher/delegator.go, delegator/interface.go, cacher.go
//
// with the defaults of pkg/features/kube_features.go.
func TestHostRules(t *testing.T) {
	minors := []int{24, 30, 31, 33, 34, 37}
	const (
		exact        = metav1.ResourceVersionMatchExact
		notOlderThan = metav1.ResourceVersionMatchNotOlderThan
	)
	for name, tc := range map[string]struct {
		options metainternalversion.ListOptions
		want    string // the minor version from which on it is so, the rule, the source; ! is a limit that is ignored
	}{
		"latest":               {metainternalversion.ListOptions{}, "24:LatestFromEtcd:etcd 31:Latest:cache"},
		"latest, a page":       {metainternalversion.ListOptions{Limit: 5}, "24:LatestFromEtcd:etcd 31:Latest:cache"},
		"any":                  {metainternalversion.ListOptions{ResourceVersion: "0"}, "24:Any:cache"},
		"any, a page":          {metainternalversion.ListOptions{ResourceVersion: "0", Limit: 5}, "24:Any:cache!"},
		"since":                {metainternalversion.ListOptions{ResourceVersion: "7"}, "24:NotOlderThan:cache"},
		"since, a page":        {metainternalversion.ListOptions{ResourceVersion: "7", Limit: 5}, "24:ExactFromEtcd:etcd 34:Exact:"},
		"not older than":       {metainternalversion.ListOptions{ResourceVersion: "7", ResourceVersionMatch: notOlderThan}, "24:NotOlderThan:cache"},
		"not older, a page":    {metainternalversion.ListOptions{ResourceVersion: "7", ResourceVersionMatch: notOlderThan, Limit: 5}, "24:NotOlderThanFromEtcd:etcd 31:NotOlderThan:cache"},
		"not older than 0":     {metainternalversion.ListOptions{ResourceVersion: "0", ResourceVersionMatch: notOlderThan, Limit: 5}, "24:Any:cache!"},
		"exact":                {metainternalversion.ListOptions{ResourceVersion: "7", ResourceVersionMatch: exact}, "24:ExactFromEtcd:etcd 34:Exact:"},
		"a further page":       {metainternalversion.ListOptions{Continue: "x", Limit: 5}, "24:ContinueFromEtcd:etcd 34:Continue:"},
		"a watch with objects": {metainternalversion.ListOptions{Watch: true}, "24:Watch:cache 30:Watch: 34:Watch:cache"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			last := ""
			for _, minor := range minors {
				reading := rulesOf(minor).decide(schema.GroupResource{Resource: "pods"}, tc.options)
				one := fmt.Sprintf(":%s:%s", reading.Rule, reading.Source)
				if reading.LimitIgnored {
					one += "!"
				}
				if one != last {
					got = append(got, strconv.Itoa(minor)+one)
				}
				last = one
			}
			if diff := cmp.Diff(strings.Fields(tc.want), got); diff != "" {
				t.Errorf("rules of %v (-want +got):\n%s", minors, diff)
			}
		})
	}
}

func TestHostRulesOfKinds(t *testing.T) {
	onNode := metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "n1"), ResourceVersion: "0", Limit: 5}
	for name, tc := range map[string]struct {
		resource  schema.GroupResource
		options   metainternalversion.ListOptions
		wantRule  string
		wantIndex string
	}{
		"pods of a node":          {schema.GroupResource{Resource: "pods"}, onNode, "Any", "f:spec.nodeName"},
		"something else's node":   {schema.GroupResource{Group: "x.io", Resource: "pods"}, onNode, "Any", ""},
		"events have no cache":    {schema.GroupResource{Resource: "events"}, metainternalversion.ListOptions{ResourceVersion: "0"}, "NoCache", ""},
		"nor have they elsewhere": {schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, metainternalversion.ListOptions{Watch: true}, "NoCache", ""},
		"other events have":       {schema.GroupResource{Group: "x.io", Resource: "events"}, metainternalversion.ListOptions{ResourceVersion: "0"}, "Any", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := rulesOf(31).decide(tc.resource, tc.options)
			if diff := cmp.Diff([]string{tc.wantRule, tc.wantIndex}, []string{string(got.Rule), got.Index}); diff != "" {
				t.Errorf("rule and index (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWatchList writes down the default of the gate WatchList.
func TestWatchList(t *testing.T) {
	want := map[int]watchListGate{
		24: watchListUnknown, 26: watchListUnknown, 27: watchListOff, 31: watchListOff,
		32: watchListOn, 33: watchListOff, 34: watchListOn, 35: watchListOn, 37: watchListOn, 38: watchListOn,
	}
	for _, minor := range slices.Sorted(maps.Keys(want)) {
		if got := rulesOf(minor).watchList; got != want[minor] {
			t.Errorf("1.%d: got %v, want %v", minor, got, want[minor])
		}
	}
}

func TestMinorOf(t *testing.T) {
	for name, tc := range map[string]struct {
		info   version.Info
		want   int
		wantOK bool
	}{
		"plain":          {version.Info{Major: "1", Minor: "31"}, 31, true},
		"a distribution": {version.Info{Major: "1", Minor: "34+"}, 34, true},
		"unset":          {version.Info{}, 0, false},
		"another major":  {version.Info{Major: "2", Minor: "1"}, 1, false},
		"emulating":      {version.Info{Major: "1", Minor: "34+", EmulationMajor: "1", EmulationMinor: "32"}, 32, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := minorOf(&tc.info); got != tc.want || ok != tc.wantOK {
				t.Errorf("got %d, %t, want %d, %t", got, ok, tc.want, tc.wantOK)
			}
		})
	}
}
