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
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/pkg/storage/annexed"
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
	token := func(revision int64) string {
		token, err := storage.EncodeContinue("/pods/a/b", "/pods/", revision)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
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
		"a further page":       {metainternalversion.ListOptions{Continue: token(7), Limit: 5}, "24:ContinueFromEtcd:etcd 34:Continue:"},
		"a page of the latest": {metainternalversion.ListOptions{Continue: token(-1), Limit: 5}, "24:LatestFromEtcd:etcd 34:Latest:cache"},
		"a watch with objects": {metainternalversion.ListOptions{Watch: true}, "24:Watch:cache 30:Watch: 34:Watch:cache"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			last := ""
			for _, minor := range minors {
				reading := rulesOf(minor).decide(schema.GroupResource{Resource: "pods"}, tc.options, false)
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

// TestHostRulesOfOneObject lists an object by its name in its namespace.
func TestHostRulesOfOneObject(t *testing.T) {
	for name, tc := range map[string]struct {
		options    metainternalversion.ListOptions
		wantRule   annexed.Rule
		wantSource annexed.Source
	}{
		"latest":              {metainternalversion.ListOptions{}, annexed.RuleLatest, annexed.SourceCache},
		"any, with a limit":   {metainternalversion.ListOptions{ResourceVersion: "0", Limit: 1}, annexed.RuleAny, annexed.SourceCache},
		"exact":               {metainternalversion.ListOptions{ResourceVersion: "7", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, annexed.RuleExactFromEtcd, annexed.SourceEtcd},
		"exact, by the limit": {metainternalversion.ListOptions{ResourceVersion: "7", Limit: 1}, annexed.RuleExactFromEtcd, annexed.SourceEtcd},
	} {
		t.Run(name, func(t *testing.T) {
			got := rulesOf(37).decide(schema.GroupResource{Resource: "pods"}, tc.options, true)
			if diff := cmp.Diff([]any{tc.wantRule, tc.wantSource, false}, []any{got.Rule, got.Source, got.LimitIgnored}); diff != "" {
				t.Errorf("rule, source and whether the limit is ignored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsSingle(t *testing.T) {
	one := metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "x")}
	next := one
	next.Continue = "x"
	for name, tc := range map[string]struct {
		namespace  string
		options    metainternalversion.ListOptions
		namespaced bool
		want       bool
	}{
		"by name in a namespace":      {"n", one, true, true},
		"by name in all namespaces":   {"", one, true, false},
		"by name, without namespaces": {"", one, false, true},
		"a further page":              {"n", next, true, false},
		"by name and namespace":       {"", metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie("metadata.name=x,metadata.namespace=n")}, true, true},
		"by what is no name":          {"n", metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "a/b")}, true, false},
		"by another field":            {"n", metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("a", "x")}, true, false},
		"all but a name":              {"n", metainternalversion.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("metadata.name", "x")}, true, false},
		"everything":                  {"n", metainternalversion.ListOptions{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			request := &Request{Info: &genericapirequest.RequestInfo{Namespace: tc.namespace}}
			if got := isSingle(request, tc.options, tc.namespaced); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
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
			got := rulesOf(31).decide(tc.resource, tc.options, false)
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
