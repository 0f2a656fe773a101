// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	annexfake "github.com/kubeannex/annex/pkg/generated/clientset/versioned/fake"
	"github.com/kubeannex/annex/pkg/preflight/preflighttest"
)

func ago(age time.Duration) metav1.Time { return metav1.Time{Time: now().Add(-age)} }

// profileServer returns a client of a server that has nothing but profiles.
func profileServer(t *testing.T, profiles *kubeannexv1alpha1.ListProfileList) annexclient.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/kubeannex.io/v1alpha1/listprofiles" {
			t.Errorf("got a request for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(profiles); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := annexclient.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// profiled is what annex has, in the order of the server.
func profiled(rows ...kubeannexv1alpha1.ListProfileRow) *kubeannexv1alpha1.ListProfileList {
	list := &kubeannexv1alpha1.ListProfileList{Replica: "annex-0", Since: ago(3 * time.Hour), Dropped: 1234, Items: []kubeannexv1alpha1.ListProfile{}}
	list.SetGroupVersionKind(kubeannexv1alpha1.SchemeGroupVersion.WithKind("ListProfileList"))
	for i := range rows {
		list.Items = append(list.Items, kubeannexv1alpha1.ListProfile{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("row-%d", i), CreationTimestamp: ago(2 * time.Hour)}, Profile: rows[i],
		})
	}
	return list
}

func reads() []kubeannexv1alpha1.ListProfileRow {
	return []kubeannexv1alpha1.ListProfileRow{
		{
			Client: "agent", ClientVersion: "v2", User: "system:serviceaccount:prod:agent", Verb: "list", Group: "example.com", Version: "v2", Resource: "widgets", Selector: "app=",
			Source: kubeannexv1alpha1.ListSourceCache, Count: 1200, Failed: 3, Scanned: 120000000, Returned: 30000, Bytes: 45 << 20, LastSeen: ago(4 * time.Second),
		},
		{
			Client: "operator", ClientVersion: "v1", User: "operator", Verb: "list", Group: "example.com", Version: "v1", Resource: "widgets",
			Source: kubeannexv1alpha1.ListSourceEtcd, Count: 2, Scanned: 200000, Returned: 200000, Bytes: 300 << 20, LastSeen: ago(time.Hour),
		},
		{
			Client: "kubectl", ClientVersion: "v1.37.2", User: "jane", Verb: "list", Group: "other.com", Version: "v1", Resource: "widgets", Selector: "namespace,spec.nodeName=",
			Source: kubeannexv1alpha1.ListSourceCache, Index: "f:spec.nodeName", Count: 1, Scanned: 25, Bytes: 600, LastSeen: ago(5 * time.Minute),
		},
		{
			Client: "operator", ClientVersion: "v1", User: "operator", Verb: "watch", Group: "example.com", Version: "v1", Resource: "racks",
			Source: kubeannexv1alpha1.ListSourceCache, Count: 7000, Bytes: 1 << 10,
		},
		{
			Client: "(others)", Verb: "get", Group: "example.com", Version: "v1", Resource: "racks/status", Count: 70, Scanned: 70, Returned: 70, Bytes: 4 << 10,
		},
	}
}

func TestTop(t *testing.T) {
	for name, s := range map[string]session{
		"top":                   {args: []string{"top"}, profiles: profiled(reads()...)},
		"top wide":              {args: []string{"top", "-o", "wide"}, profiles: profiled(reads()...)},
		"top by returned":       {args: []string{"top", "--sort-by=returned"}, profiles: profiled(reads()...)},
		"top by bytes":          {args: []string{"top", "--sort-by=bytes"}, profiles: profiled(reads()...)},
		"top by count":          {args: []string{"top", "--sort-by=count", "--limit=2"}, profiles: profiled(reads()...)},
		"top of group":          {args: []string{"top", "example.com", "--limit=0"}, profiles: profiled(reads()...)},
		"top of resource":       {args: []string{"top", "widgets", "--limit=1"}, profiles: profiled(reads()...)},
		"top of both":           {args: []string{"top", "widgets.other.com"}, profiles: profiled(reads()...)},
		"top as json":           {args: []string{"top", "--limit=1", "--sort-by=bytes", "-ojson"}, profiles: profiled(reads()...)},
		"top as yaml":           {args: []string{"top", "widgets.other.com", "-oyaml"}, profiles: profiled(reads()...)},
		"top of nothing":        {args: []string{"top"}, profiles: profiled()},
		"top of nothing known":  {args: []string{"top"}, profiles: &kubeannexv1alpha1.ListProfileList{}},
		"top of none as json":   {args: []string{"top", "-ojson"}, profiles: profiled()},
		"top of unknown":        {args: []string{"top", "gadgets"}, profiles: profiled(reads()...)},
		"top of subresource":    {args: []string{"top", "racks.example.com/status"}, profiles: profiled(reads()...)},
		"top none dropped":      {args: []string{"top", "--limit=1"}, profiles: noneDropped(profiled(reads()...))},
		"top of three replicas": {args: []string{"top", "--limit=1", "-ojson"}, profiles: profiled(reads()...), alter: served(slice("a", "10.0.0.1", "10.0.0.2"), slice("b", "10.0.0.3"), slice("6", "fd00::1", "fd00::2", "fd00::3"))},
		"top of all replicas":   {args: []string{"top", "--limit=1"}, profiles: ofReplicas(profiled(reads()...)), alter: served(slice("a", "10.0.0.1", "10.0.0.2"), slice("b", "10.0.0.3"))},
		"top of one replica":    {args: []string{"top", "--limit=1"}, profiles: profiled(reads()...), alter: served(slice("a", "10.0.0.1"))},
		"top of two":            {args: []string{"top", "a", "b"}},
		"top by unknown":        {args: []string{"top", "--sort-by=age"}},
		"top less than nothing": {args: []string{"top", "--limit=-1"}},
		"top odd format":        {args: []string{"top", "-oname"}},
		"top annex down":        {args: []string{"top"}, answers: downProfiles},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

// ofReplicas is a list that two processes have answered, and a third has not.
func ofReplicas(list *kubeannexv1alpha1.ListProfileList) *kubeannexv1alpha1.ListProfileList {
	list.Replicas, list.Missing = []string{"annex-0", "annex-1"}, []string{"annex-2"}
	return list
}

func noneDropped(list *kubeannexv1alpha1.ListProfileList) *kubeannexv1alpha1.ListProfileList {
	list.Dropped = 0
	return list
}

// served is a cluster whose Service of annex has endpoints.
func served(slices ...*discoveryv1.EndpointSlice) func(*preflighttest.Cluster) {
	return func(c *preflighttest.Cluster) {
		for _, s := range slices {
			c.Webhooks = append(c.Webhooks, s)
		}
	}
}

// slice has addresses of replicas, and that of one that is not ready.
func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "annex-system", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "annex"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.99"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}},
	}
	if strings.Contains(addresses[0], "::") {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	return s
}

func downProfiles(c *annexfake.Clientset) {
	c.PrependReactor("list", "listprofiles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, unavailableError()
	})
}
