// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// TestFencesThatNobodyTakesCareOf says which fences are lifted without their step.
func TestFencesThatNobodyTakesCareOf(t *testing.T) {
	const group = "lab.annex.test"
	begin := time.Unix(1000, 0)
	cases := map[string]struct {
		service  *apiregistrationv1.APIService
		own      bool
		age      time.Duration
		wantKept bool
	}{
		"an old one of an earlier process":                {service: apiServiceOf(), age: maxOrphan},
		"a young one of an earlier process":               {service: apiServiceOf(), age: maxOwn, wantKept: true},
		"an own one as old as its step may keep it":       {service: apiServiceOf(), own: true, age: maxFence, wantKept: true},
		"an own one that its step did not take down":      {service: apiServiceOf(), own: true, age: maxOwn},
		"an old one of a group that is half way to annex": {service: apiServiceOf(annexService), own: true, age: time.Hour, wantKept: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := testingclock.NewFakeClock(begin)
			d := definition(t, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = d.Spec.Versions[:1] })
			r := &Reconciler{Clock: now, Connections: cluster.Connections{
				Host: &cluster.Server{
					Kube: fake.NewClientset(), Definitions: apiextensionsfake.NewClientset(d), APIServices: aggregatorfake.NewClientset(tc.service),
				},
				AnnexService: apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex"},
			}}
			raised, err := r.fences().Raise(t.Context(), group, begin)
			if err != nil {
				t.Fatal(err)
			}
			if tc.own {
				r.sessions.raised(*raised)
			}
			now.Step(tc.age)
			all, err := r.fences().List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.liftOlder(t.Context(), r.sessions.standing(), maxOwn); err != nil {
				t.Fatal(err)
			}
			if err := r.liftOlder(t.Context(), all, maxOrphan); err != nil {
				t.Fatal(err)
			}
			left, err := r.fences().Get(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			if kept := left != nil; kept != tc.wantKept {
				t.Errorf("the fence is kept: %t, want %t", kept, tc.wantKept)
			}
			if left == nil && len(r.sessions.standing()) > 0 {
				t.Error("a fence that is down is still looked at")
			}
		})
	}
}
