// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// TestServedDataAreKept runs every step that drops data of annex, with and
// without clients that work with them.
func TestServedDataAreKept(t *testing.T) {
	const morphs, gadgets = "morphs." + labGroup, "gadgets." + labGroup
	partly := []*apiregistrationv1.APIService{apiServiceOf(), apiServiceOf(annexService, version("v2"))}
	cases := map[string]struct {
		phase    kubeannexv1alpha1.AnnexedGroupPhase
		deleting bool
		services []*apiregistrationv1.APIService

		wantErr     bool
		wantDropped int
		wantMirrors []string
	}{
		"an abort of what clients work with":        {kubeannexv1alpha1.PhasePreflight, true, routes(), true, 0, []string{gadgets, morphs}},
		"an abort that goes on":                     {kubeannexv1alpha1.PhaseAborting, true, routes(), true, 0, []string{gadgets, morphs}},
		"an abort of what some clients work with":   {kubeannexv1alpha1.PhaseAborting, true, partly, true, 0, []string{gadgets, morphs}},
		"an abort of a copy":                        {kubeannexv1alpha1.PhaseAborting, true, localRoutes(), false, 1, nil},
		"a new copy of what clients work with":      {kubeannexv1alpha1.PhaseCopying, false, routes(), true, 0, []string{gadgets, morphs}},
		"a new copy of what some clients work with": {kubeannexv1alpha1.PhaseCopying, false, partly, true, 0, []string{gadgets, morphs}},
		"a new copy":                           {kubeannexv1alpha1.PhaseCopying, false, localRoutes(), false, 1, []string{gadgets, morphs}},
		"an old mirror that clients work with": {kubeannexv1alpha1.PhaseMirroring, false, routes(), true, 0, []string{gadgets, morphs}},
		"an old mirror":                        {kubeannexv1alpha1.PhaseMirroring, false, localRoutes(), false, 0, []string{morphs}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{
				status:   kubeannexv1alpha1.AnnexedGroupStatus{Phase: tc.phase, Serving: kubeannexv1alpha1.ServingClosed},
				deleting: tc.deleting, services: tc.services,
				mirrors: []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t)), mirrorIn(t, gadgetDefinition(t))},
			})
			before := l.routed(t)
			group, _, err := l.run(t)
			if errors.Is(err, errRouted) != tc.wantErr || err != nil && !tc.wantErr {
				t.Errorf("got %v, want a refusal: %t", err, tc.wantErr)
			}
			if tc.wantErr && !strings.HasPrefix(condition(group, kubeannexv1alpha1.ConditionProgressing), "False") {
				t.Errorf("Progressing is %s, want False", condition(group, kubeannexv1alpha1.ConditionProgressing))
			}
			if l.annex.dropped != tc.wantDropped {
				t.Errorf("annex's data were dropped %d times, want %d", l.annex.dropped, tc.wantDropped)
			}
			if diff := cmp.Diff(tc.wantMirrors, l.mirrored(t)); diff != "" {
				t.Errorf("annex's definitions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, l.routed(t)); diff != "" {
				t.Errorf("routes (-before +after):\n%s", diff)
			}
		})
	}
}

// TestAbortKeepsTheGateOpen expects an abort that is refused to leave clients alone.
func TestAbortKeepsTheGateOpen(t *testing.T) {
	l := startLab(t, setup{
		status:   kubeannexv1alpha1.AnnexedGroupStatus{Phase: kubeannexv1alpha1.PhaseAborting, Serving: kubeannexv1alpha1.ServingOpen},
		deleting: true, services: routes(),
	})
	group, _, err := l.run(t)
	if !errors.Is(err, errRouted) || group.Status.Serving != kubeannexv1alpha1.ServingOpen {
		t.Errorf("got %v in mode %s, want a refusal in mode Open", err, group.Status.Serving)
	}
}

func TestServedByAnnex(t *testing.T) {
	type definitions = []*apiextensionsv1.CustomResourceDefinition
	served := mirrorIn(t, definition(t), servedAnnotation)
	leaving := served.DeepCopy()
	leaving.DeletionTimestamp = ptr.To(metav1.Now())
	own := served.DeepCopy()
	delete(own.Annotations, mirrorAnnotation)
	on, err := touched(definition(t))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		services      []*apiregistrationv1.APIService
		host, mirrors definitions
		want          bool
	}{
		"all of it":                             {services: routes(), mirrors: definitions{served}, want: true},
		"the private route is open":             {services: routes(), host: definitions{on}, mirrors: definitions{served}, want: true},
		"the cluster serves it":                 {services: localRoutes(), mirrors: definitions{served}},
		"the cluster serves a version":          {services: []*apiregistrationv1.APIService{apiServiceOf(annexService), apiServiceOf(version("v2"))}, mirrors: definitions{served}},
		"a version has no APIService":           {services: routes()[:1], mirrors: definitions{served}},
		"a copy that was never served":          {services: routes(), mirrors: definitions{mirrorIn(t, definition(t))}},
		"annex has nothing":                     {services: routes(), mirrors: definitions{}},
		"a mirror is on its way out":            {services: routes(), mirrors: definitions{leaving}},
		"a definition of annex that is its own": {services: routes(), mirrors: definitions{own}},
		"a kind that annex has not": {
			services: append(routes(), apiServiceOf(annexService, version("v3"))), host: definitions{definition(t), gadgetDefinition(t)}, mirrors: definitions{served},
		},
		"the cluster has no definition": {services: routes(), host: definitions{}, mirrors: definitions{served}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{services: tc.services, definitions: tc.host, mirrors: tc.mirrors})
			resources, err := l.hostResources(t.Context(), labGroup)
			if err != nil {
				t.Fatal(err)
			}
			got, err := l.servedByAnnex(t.Context(), labGroup, resources)
			if err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

// TestResume takes a group up whose AnnexedGroup was lost in the middle of a release.
func TestResume(t *testing.T) {
	cases := map[string]struct {
		phase    kubeannexv1alpha1.AnnexedGroupPhase
		deleting bool
		// wantNext is what the second step leads to.
		wantNext string
	}{
		"a new adoption":                  {kubeannexv1alpha1.PhasePending, false, "Annexed/Open"},
		"one that is deleted at once":     {kubeannexv1alpha1.PhasePending, true, "ReleaseFencing/Open"},
		"an abort, which becomes release": {kubeannexv1alpha1.PhaseAborting, true, "ReleaseFencing/Open"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			on, err := opened("5")(definition(t))
			if err != nil {
				t.Fatal(err)
			}
			l := startLab(t, setup{
				status:   kubeannexv1alpha1.AnnexedGroupStatus{Phase: tc.phase, Serving: kubeannexv1alpha1.ServingClosed},
				deleting: tc.deleting, services: routes(), definitions: []*apiextensionsv1.CustomResourceDefinition{on},
				mirrors: []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t), servedAnnotation)},
			})
			if !tc.deleting {
				l.annex.group.Finalizers = nil
			}
			group, _, err := l.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("Annexed/Open", shortStatus(group)); diff != "" {
				t.Errorf("after the first step (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{kubeannexv1alpha1.ReleaseFinalizer}, group.Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			if text := l.happened(); !strings.Contains(text, "Resumed") {
				t.Errorf("events %q, want Resumed", text)
			}
			if l.opened(t) {
				t.Error("the private route is still open")
			}
			if group, _, err = l.run(t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantNext, shortStatus(group)); diff != "" {
				t.Errorf("after the second step (-want +got):\n%s", diff)
			}
			const kind = kubeannexv1alpha1.ConditionStrayWrites
			if diff := cmp.Diff("Unknown "+reasonUnsure, condition(group, kind)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", kind, diff)
			}
			if l.annex.dropped > 0 {
				t.Error("annex's data were dropped")
			}
		})
	}
}

// TestRestoredClusterIsNotTakenOver has an AnnexedGroup of a group that annex
// serves, and a cluster with more or fewer traces of that.
func TestRestoredClusterIsNotTakenOver(t *testing.T) {
	held := definition(t, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Finalizers = append(d.Finalizers, kubeannexv1alpha1.DefinitionFinalizer)
	})
	cases := map[string]struct {
		definition *apiextensionsv1.CustomResourceDefinition
		services   []*apiregistrationv1.APIService
		wantErr    bool
	}{
		"no trace at all":        {definition(t), localRoutes(), true},
		"the finalizer":          {held, localRoutes(), false},
		"one of its APIServices": {definition(t), []*apiregistrationv1.APIService{apiServiceOf(), apiServiceOf(annexService, version("v2"))}, false},
		"every trace":            {held, routes(), false},
	}
	for name, tc := range cases {
		for _, phase := range []kubeannexv1alpha1.AnnexedGroupPhase{kubeannexv1alpha1.PhaseUnfencing, kubeannexv1alpha1.PhaseAnnexed, kubeannexv1alpha1.PhaseReleasing} {
			if phase == kubeannexv1alpha1.PhaseUnfencing && !tc.wantErr {
				continue // it leaves the routes to the next phase
			}
			t.Run(name+" in "+string(phase), func(t *testing.T) {
				status := annexedStatus(time.Now(), metav1.ConditionFalse)
				status.Phase = phase
				// Before the last look at strays the definitions are touched.
				meta.RemoveStatusCondition(&status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
				l := startLab(t, setup{
					status: status, deleting: phase == kubeannexv1alpha1.PhaseReleasing, services: tc.services,
					definitions: []*apiextensionsv1.CustomResourceDefinition{tc.definition},
				})
				want := map[string]string{"v1": "annex", "v2": "annex"}
				if tc.wantErr {
					want = l.routed(t)
				}
				if _, _, err := l.run(t); errors.Is(err, errRestored) != tc.wantErr || err != nil && !tc.wantErr {
					t.Errorf("got %v, want a refusal: %t", err, tc.wantErr)
				}
				if diff := cmp.Diff(want, l.routed(t)); diff != "" {
					t.Errorf("routes (-want +got):\n%s", diff)
				}
				if tc.wantErr && l.opened(t) {
					t.Error("the cluster's definitions were changed")
				}
			})
		}
	}
}

// TestServedIsMarked expects the mark from the first step of an annexed group on,
// whatever becomes of the cluster's definition.
func TestServedIsMarked(t *testing.T) {
	l := startLab(t, setup{status: annexedStatus(time.Now(), metav1.ConditionFalse), services: routes()})
	for _, change := range []func(*apiextensionsv1.CustomResourceDefinition){
		func(*apiextensionsv1.CustomResourceDefinition) {},
		func(d *apiextensionsv1.CustomResourceDefinition) { d.Annotations["owner"] = "somebody else" },
	} {
		changed := definition(t, change, func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Finalizers = append(d.Finalizers, kubeannexv1alpha1.DefinitionFinalizer)
		})
		if _, err := l.definitions.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.run(t); err != nil {
			t.Fatal(err)
		}
		// It is never without the mark: the AnnexedGroup may be lost at any moment.
		changed.Labels = map[string]string{"app": changed.Annotations["owner"]}
		if err := l.mirrorDefinition(t.Context(), changed, true); err != nil {
			t.Fatal(err)
		}
		mirror, err := l.mirrors.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "morphs."+labGroup, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"owner": changed.Annotations["owner"], mirrorAnnotation: "1", servedAnnotation: "true"}
		if diff := cmp.Diff(want, mirror.Annotations); diff != "" {
			t.Errorf("annotations of the mirror (-want +got):\n%s", diff)
		}
	}
}

// TestCopyTakesTheMarkOff begins an adoption over definitions that an earlier one has left.
func TestCopyTakesTheMarkOff(t *testing.T) {
	l := startLab(t, setup{status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: kubeannexv1alpha1.PhaseMirroring, Serving: kubeannexv1alpha1.ServingClosed}, services: localRoutes()})
	mirrors, err := listDefinitions(t.Context(), l.Connections.Annex, labGroup)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.markServed(t.Context(), mirrors); err != nil {
		t.Fatal(err)
	}
	if err := l.mirrorDefinition(t.Context(), definition(t), false); err != nil {
		t.Fatal(err)
	}
	mirror, err := l.mirrors.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "morphs."+labGroup, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if mirror.Annotations[servedAnnotation] != "" {
		t.Error("an unfinished copy would be taken for what annex has served")
	}
}

// TestOrphansKeepTheirRoute takes definitions away from the cluster whose objects annex keeps.
func TestOrphansKeepTheirRoute(t *testing.T) {
	gadgetRoute := apiServiceOf(annexService, version("v3"))
	cases := map[string]struct {
		services []*apiregistrationv1.APIService
		mirrors  []*apiextensionsv1.CustomResourceDefinition
		want     map[string]string
		wantWhy  string
	}{
		"the route stays": {
			services: append(routes(), gadgetRoute),
			mirrors:  []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t)), mirrorIn(t, gadgetDefinition(t))},
			want:     map[string]string{"v1": "annex", "v2": "annex", "v3": "annex"}, wantWhy: "False Orphaned",
		},
		"the route is restored": {
			services: routes(),
			mirrors:  []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t)), mirrorIn(t, gadgetDefinition(t))},
			want:     map[string]string{"v1": "annex", "v2": "annex", "v3": "annex"}, wantWhy: "False Orphaned",
		},
		"a version that nothing serves goes": {
			services: append(routes(), gadgetRoute),
			mirrors:  []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t))},
			want:     map[string]string{"v1": "annex", "v2": "annex"}, wantWhy: "True Mirrored",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{status: annexedStatus(time.Now(), metav1.ConditionFalse), services: tc.services, mirrors: tc.mirrors})
			group, _, err := l.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, l.routed(t)); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWhy, condition(group, kubeannexv1alpha1.ConditionMirrored)); diff != "" {
				t.Errorf("Mirrored (-want +got):\n%s", diff)
			}
		})
	}
}
