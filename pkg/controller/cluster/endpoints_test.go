// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func sliceOf(name string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Ports:      ports, Endpoints: endpoints,
	}
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

func TestAddresses(t *testing.T) {
	https := []discoveryv1.EndpointPort{port("https", 6443)}
	unready := discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}
	ending := discoveryv1.Endpoint{Addresses: []string{"10.0.0.8"}, Conditions: discoveryv1.EndpointConditions{
		Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(true),
	}}
	cases := map[string]struct {
		slices      []discoveryv1.EndpointSlice
		want        []string
		wantLeaving []string
	}{
		"none": {},
		"two servers, IPv4 and IPv6": {
			slices: []discoveryv1.EndpointSlice{
				sliceOf("b", https, discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}}),
				sliceOf("a", https, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}}, discoveryv1.Endpoint{Addresses: []string{"fd00::1"}}),
			},
			want: []string{"https://10.0.0.1:6443", "https://10.0.0.2:6443", "https://[fd00::1]:6443"},
		},
		"one that is not ready": {slices: []discoveryv1.EndpointSlice{sliceOf("a", https, unready)}},
		"one that ends": {
			slices: []discoveryv1.EndpointSlice{sliceOf("a", https, ending, unready, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})},
			want:   []string{"https://10.0.0.1:6443"}, wantLeaving: []string{"https://10.0.0.8:6443"},
		},
		"the same address twice": {
			slices: []discoveryv1.EndpointSlice{
				sliceOf("a", https, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}}), sliceOf("b", https, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}}),
			},
			want: []string{"https://10.0.0.1:6443"},
		},
		"several ports": {
			slices: []discoveryv1.EndpointSlice{sliceOf("a", []discoveryv1.EndpointPort{port("metrics", 1), port("https", 2)}, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})},
			want:   []string{"https://10.0.0.1:2"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Addresses(tc.slices, ready)); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantLeaving, Addresses(tc.slices, leaving)); diff != "" {
				t.Errorf("addresses of those that end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSlicedEndpoints(t *testing.T) {
	slice := sliceOf("kubernetes", []discoveryv1.EndpointPort{port("https", 6443)}, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
	pool := NewPool("kube-apiserver", &rest.Config{Host: "https://cluster.test"}, "cluster.test")
	endpoints := Sliced(pool, fake.NewClientset(&slice), "default", "kubernetes")
	first, err := endpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := endpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 1 || len(second) != 1 || first[0] != second[0] {
		t.Fatalf("got %v and %v, want the same server twice", first, second)
	}
	if got := first[0]; got.Config.Host != "https://10.0.0.1:6443" || got.Config.ServerName != "cluster.test" {
		t.Errorf("%s is verified as %q", got.Config.Host, got.Config.ServerName)
	}
	_, err = Sliced(pool, fake.NewClientset(), "default", "kubernetes")(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no ready endpoint") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestServerName(t *testing.T) {
	for name, tc := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"by its address": {&rest.Config{Host: "https://10.0.0.1:6443"}, "10.0.0.1"},
		"by a set name":  {&rest.Config{Host: "https://10.0.0.1:6443", TLSClientConfig: rest.TLSClientConfig{ServerName: "cluster.test"}}, "cluster.test"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ServerName(tc.config)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	if _, err := ServerName(&rest.Config{Host: "10.0.0.1"}); err == nil {
		t.Error("an address without a scheme was accepted")
	}
}
