// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
)

var copiedMorphs = schema.GroupVersionResource{Group: labGroup, Version: kubeannexv1alpha1.PrivateVersion, Resource: "morphs"}

// copyOf is the cluster's copy of a morph.
func copyOf(name, uid, revision string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: copiedMorphs.GroupVersion().String(), Kind: "Morph"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: revision},
	}
}

func identityDigest(copies ...*metav1.PartialObjectMetadata) string {
	var set digest.Set
	for _, c := range copies {
		set.Add(identityOf(keyOf(c), c.UID, c.ResourceVersion))
	}
	return set.String()
}

// annexedStatus is that of a group that was adopted an hour ago with one object;
// strays is what the last look at the copies found.
func annexedStatus(now time.Time, strays metav1.ConditionStatus) kubeannexv1alpha1.AnnexedGroupStatus {
	since, reason := metav1.NewTime(now.Add(-time.Hour)), reasonNone
	if strays == metav1.ConditionTrue {
		reason = reasonFound
	}
	return kubeannexv1alpha1.AnnexedGroupStatus{
		Phase: kubeannexv1alpha1.PhaseAnnexed, Serving: kubeannexv1alpha1.ServingOpen, ObservedGeneration: 1,
		Conditions: []metav1.Condition{
			{Type: kubeannexv1alpha1.ConditionAnnexed, Status: metav1.ConditionTrue, Reason: "Annexed", LastTransitionTime: since},
			{Type: kubeannexv1alpha1.ConditionStrayWrites, Status: strays, Reason: reason, Message: "morphs (ns/a)", LastTransitionTime: since},
		},
		Resources: []kubeannexv1alpha1.AnnexedResourceStatus{{Resource: "morphs", Objects: 1, HostDigest: identityDigest(copyOf("a", "1", "10"))}},
	}
}

// TestCopiesAreLookedAtAgain takes a route away for a while: what clients wrote
// to the cluster's copies meanwhile is found.
func TestCopiesAreLookedAtAgain(t *testing.T) {
	cases := map[string]struct {
		services []*apiregistrationv1.APIService
		strays   metav1.ConditionStatus
		// present are the copies afterwards, unverified says that nobody knows what they were.
		present    []*metav1.PartialObjectMetadata
		unverified bool

		wantFirst, wantLast string
	}{
		"no route was taken away": {
			services: routes(), strays: metav1.ConditionFalse, present: []*metav1.PartialObjectMetadata{copyOf("a", "1", "20")},
			wantFirst: "False None", wantLast: "False None",
		},
		"nobody wrote": {
			services: localRoutes(), strays: metav1.ConditionFalse, present: []*metav1.PartialObjectMetadata{copyOf("a", "1", "10")},
			wantFirst: "Unknown Watching", wantLast: "False None",
		},
		"an object was changed": {
			services: localRoutes(), strays: metav1.ConditionFalse, present: []*metav1.PartialObjectMetadata{copyOf("a", "1", "20")},
			wantFirst: "Unknown Watching", wantLast: "True Found",
		},
		"an object was created while one version was local": {
			services: []*apiregistrationv1.APIService{apiServiceOf(annexService), apiServiceOf(version("v2"))},
			strays:   metav1.ConditionFalse, present: []*metav1.PartialObjectMetadata{copyOf("a", "1", "10"), copyOf("b", "2", "20")},
			wantFirst: "Unknown Watching", wantLast: "True Found",
		},
		"an object was deleted while an APIService was missing": {
			services: routes()[:1], strays: metav1.ConditionFalse, wantFirst: "Unknown Watching", wantLast: "True Found",
		},
		"nobody knows what the copies were": {
			services: localRoutes(), strays: metav1.ConditionUnknown, present: []*metav1.PartialObjectMetadata{copyOf("a", "1", "20")}, unverified: true,
			wantFirst: "Unknown Watching", wantLast: "True Found",
		},
		"strays of before are found again": {
			services: localRoutes(), strays: metav1.ConditionTrue, present: []*metav1.PartialObjectMetadata{copyOf("a", "1", "20")},
			wantFirst: "Unknown Watching", wantLast: "True Found",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := annexedStatus(time.Now(), tc.strays)
			if tc.unverified {
				status.Resources[0].HostDigest = ""
			}
			l := startLab(t, setup{status: status, services: tc.services})
			for _, c := range tc.present {
				if err := l.copies.Tracker().Create(copiedMorphs, c, c.Namespace); err != nil {
					t.Fatal(err)
				}
			}
			lookTwice(t, l, tc.wantFirst, tc.wantLast)
			// Strays can be looked at through it.
			if strays := tc.wantLast == "True Found"; l.opened(t) != strays {
				t.Errorf("the private route is open: %t, want %t", !strays, strays)
			}
		})
	}
}

// lookTwice runs a group that is annexed until the last look at the copies is due
// at the latest, and compares the condition StrayWrites at the beginning and at the end.
func lookTwice(t *testing.T, l *lab, wantFirst, wantLast string) {
	t.Helper()
	const kind = kubeannexv1alpha1.ConditionStrayWrites
	group, _, err := l.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantFirst, condition(group, kind)); diff != "" {
		t.Errorf("%s at first (-want +got):\n%s", kind, diff)
	}
	again := wantFirst == "Unknown Watching"
	if told := strings.Contains(l.happened(), "RouteRestored"); told != again {
		t.Errorf("an event tells of the route: %t, want %t", told, again)
	}
	if diff := cmp.Diff(map[string]string{"v1": "annex", "v2": "annex"}, l.routed(t)); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	// Requests that were let through live on for a while.
	group, result, err := l.run(t)
	if err != nil || again && (condition(group, kind) != wantFirst || result.RequeueAfter == 0) {
		t.Errorf("%s is %s, looked at again after %s, error %v", kind, condition(group, kind), result.RequeueAfter, err)
	}
	l.clock.Step(time.Minute)
	if group, _, err = l.run(t); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLast, condition(group, kind)); diff != "" {
		t.Errorf("%s at last (-want +got):\n%s", kind, diff)
	}
}

// TestReleaseLooksAtStraysFirst begins releases that would overwrite what nobody has looked at.
func TestReleaseLooksAtStraysFirst(t *testing.T) {
	cases := map[string]struct {
		services []*apiregistrationv1.APIService
		mirrors  []*apiextensionsv1.CustomResourceDefinition
		strays   metav1.ConditionStatus
		discard  bool

		wantErr string

		wantPhase                   kubeannexv1alpha1.AnnexedGroupPhase
		wantStrays, wantProgressing string
	}{
		"there are none": {
			services: routes(), strays: metav1.ConditionFalse,
			wantPhase: kubeannexv1alpha1.PhaseReleaseFencing, wantStrays: "False None", wantProgressing: "True ReleaseFencing",
		},
		"annex has objects whose definition the cluster lost": {
			services: append(routes(), apiServiceOf(annexService, version("v3"))), strays: metav1.ConditionFalse,
			mirrors:   []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t)), mirrorIn(t, gadgetDefinition(t))},
			wantErr:   "gadgets." + labGroup,
			wantPhase: kubeannexv1alpha1.PhaseReleasing, wantStrays: "False None", wantProgressing: "False HeldUp",
		},
		"there are some": {
			services: routes(), strays: metav1.ConditionTrue,
			wantPhase: kubeannexv1alpha1.PhaseReleasing, wantStrays: "True Found", wantProgressing: "False StrayWrites",
		},
		"they have been looked at": {
			services: routes(), strays: metav1.ConditionTrue, discard: true,
			wantPhase: kubeannexv1alpha1.PhaseReleaseFencing, wantStrays: "True Found", wantProgressing: "True ReleaseFencing",
		},
		"a route was taken away since the last look": {
			services: localRoutes(), strays: metav1.ConditionFalse,
			wantPhase: kubeannexv1alpha1.PhaseReleasing, wantStrays: "Unknown Watching", wantProgressing: "True Releasing",
		},
		"a route was taken away, old strays may be discarded": {
			services: localRoutes(), strays: metav1.ConditionTrue, discard: true,
			wantPhase: kubeannexv1alpha1.PhaseReleasing, wantStrays: "Unknown Watching", wantProgressing: "True Releasing",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{
				status: annexedStatus(time.Now(), tc.strays), services: tc.services, mirrors: tc.mirrors, deleting: true,
				spec: kubeannexv1alpha1.AnnexedGroupSpec{DiscardStrayWrites: tc.discard},
			})
			group, result, err := l.run(t)
			if tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) || tc.wantErr == "" && (err != nil || result.RequeueAfter == 0) {
				t.Errorf("looked at again after %s, error %v, want %q or a pause", result.RequeueAfter, err, tc.wantErr)
			}
			got := []string{string(group.Status.Phase), condition(group, kubeannexv1alpha1.ConditionStrayWrites), condition(group, kubeannexv1alpha1.ConditionProgressing)}
			if diff := cmp.Diff([]string{string(tc.wantPhase), tc.wantStrays, tc.wantProgressing}, got); diff != "" {
				t.Errorf("phase, StrayWrites, Progressing (-want +got):\n%s", diff)
			}
			if begun := tc.wantPhase != kubeannexv1alpha1.PhaseReleasing; l.opened(t) != (begun || tc.wantStrays == "Unknown Watching") {
				t.Errorf("the private route is open: %t, the release has begun: %t", l.opened(t), begun)
			}
		})
	}
}
