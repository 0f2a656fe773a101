// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"errors"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/preflight"
)

// clusterOnly is a factory for nothing but a cluster.
type clusterOnly struct {
	client.Factory

	clients preflight.Clients
	err     error
}

func (f clusterOnly) Preflight() (preflight.Clients, error) { return f.clients, f.err }

func endpoints(name string, addressType discoveryv1.AddressType, addresses ...string) runtime.Object {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "annex", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
		AddressType: addressType,
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return slice
}

func TestWarn(t *testing.T) {
	registered := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.kubeannex.io"},
		Spec:       apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "annex", Name: "api"}},
	}
	const unknown = "Warning: annex runs 2 replicas and these are the reads of 1: the others are older, or their logs say why they do not tell what they see.\n"
	own := &kubeannexv1alpha1.ListProfileList{Replica: "annex-0", Replicas: []string{"annex-0"}}
	old := &kubeannexv1alpha1.ListProfileList{Replica: "annex-0"}
	both := &kubeannexv1alpha1.ListProfileList{Replica: "annex-0", Replicas: []string{"annex-0", "annex-1"}}
	missing := &kubeannexv1alpha1.ListProfileList{Replica: "annex-0", Replicas: []string{"annex-0"}, Missing: []string{"annex-1"}}
	two := []runtime.Object{endpoints("a", discoveryv1.AddressTypeIPv4, "1.1.1.1", "1.1.1.2")}
	tests := map[string]struct {
		list       *kubeannexv1alpha1.ListProfileList
		registered []runtime.Object
		slices     []runtime.Object
		slicesErr  error
		err        error

		want string
	}{
		"a server that runs alone":      {list: own},
		"a service without endpoints":   {list: own, registered: []runtime.Object{registered}},
		"one replica":                   {list: own, registered: []runtime.Object{registered}, slices: []runtime.Object{endpoints("a", discoveryv1.AddressTypeIPv4, "1.1.1.1")}},
		"one with addresses of 2 types": {list: own, registered: []runtime.Object{registered}, slices: []runtime.Object{endpoints("a", discoveryv1.AddressTypeIPv4, "1.1.1.1"), endpoints("b", discoveryv1.AddressTypeIPv6, "::1")}},
		"two that are shown":            {list: both, registered: []runtime.Object{registered}, slices: two},
		"one that the server misses":    {list: missing, registered: []runtime.Object{registered}, slices: two},
		"one that has not begun":        {list: own, registered: []runtime.Object{registered}, slices: two, want: unknown},
		"a server that tells nothing":   {list: old, registered: []runtime.Object{registered}, slices: two, want: unknown},
		"in two slices":                 {list: own, registered: []runtime.Object{registered}, slices: []runtime.Object{endpoints("a", discoveryv1.AddressTypeIPv4, "1.1.1.1"), endpoints("b", discoveryv1.AddressTypeIPv4, "1.1.1.2")}, want: unknown},
		"what the user may not read": {
			list: own, registered: []runtime.Object{registered},
			slicesErr: apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "", errors.New("no role")),
		},
		"no clients": {list: own, err: errors.New("no kubeconfig")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kube := kubefake.NewClientset(tc.slices...)
			if tc.slicesErr != nil {
				kube.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.slicesErr })
			}
			var errOut bytes.Buffer
			o := &Options{
				factory:   clusterOnly{clients: preflight.Clients{Kube: kube, APIServices: aggregatorfake.NewClientset(tc.registered...)}, err: tc.err},
				IOStreams: genericiooptions.IOStreams{ErrOut: &errOut},
			}
			o.warn(t.Context(), tc.list)
			if got := errOut.String(); got != tc.want {
				t.Errorf("got  %swant %s", got, tc.want)
			}
		})
	}
}
