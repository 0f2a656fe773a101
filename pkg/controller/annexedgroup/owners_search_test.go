// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
)

// discovered is a cluster that has other resources than the stub.
type discovered struct {
	kubernetes.Interface
	lists []*metav1.APIResourceList
}

func (d *discovered) Discovery() discovery.DiscoveryInterfaces {
	return &preferred{DiscoveryInterfaces: d.Interface.Discovery(), lists: d.lists}
}

type preferred struct {
	discovery.DiscoveryInterfaces
	lists []*metav1.APIResourceList
}

func (p *preferred) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return p.lists, nil
}

// discover gives the lab a cluster with ConfigMaps, one of which an object owns
// that had the UID old, with Secrets, Deployments and what nobody can own.
func (l *lab) discover(t *testing.T) {
	t.Helper()
	list := func(version string, names ...string) *metav1.APIResourceList {
		result := &metav1.APIResourceList{GroupVersion: version}
		for _, name := range names {
			result.APIResources = append(result.APIResources, metav1.APIResource{Name: name, Verbs: metav1.Verbs{"list", "patch"}})
		}
		return result
	}
	reviews := list("authorization.k8s.io/v1", "subjectaccessreviews")
	reviews.APIResources[0].Verbs = metav1.Verbs{"create"}
	l.Connections.Host.Kube = &discovered{Interface: l.kube, lists: []*metav1.APIResourceList{
		list("v1", "configmaps", "events", "secrets"), list("apps/v1", "deployments"), list(labGroup+"/v1", "morphs"), list("weather.test/v1", "events"), reviews,
	}}
	owned := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owned", OwnerReferences: ownedBy("old")},
	}
	l.copies.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{Items: []runtime.RawExtension{{Object: owned}}}, nil
	})
}

// refuse takes rights from the controller, as "verb resource".
func (l *lab) refuse(rights ...string) {
	for _, right := range rights {
		if resource, listed := strings.CutPrefix(right, "list "); listed {
			l.copies.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
			})
		}
	}
	l.kube.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = !slices.Contains(rights, asked.Verb+" "+asked.Resource)
		return true, review, nil
	})
}

// listed are the resources whose metadata were listed.
func (l *lab) listed() []string {
	var names []string
	for _, action := range l.copies.Actions() {
		if action.GetVerb() == "list" {
			names = append(names, action.GetResource().GroupResource().String())
		}
	}
	slices.Sort(names)
	return names
}

func kinds(names ...string) []schema.GroupResource {
	var result []schema.GroupResource
	for _, name := range names {
		group, resource, _ := strings.Cut(name, "/")
		result = append(result, schema.GroupResource{Group: group, Resource: resource})
	}
	return result
}

func TestSearchForDependents(t *testing.T) {
	const toMend = ": grant that to annex-controller (ClusterRole annex-controller:adopted-groups), or name all kinds that objects of the group own in " +
		"rbac.dependents of the chart and set rbac.dependentsComplete (--dependents), and nothing else is searched"
	found := kinds("/configmaps")
	cases := map[string]struct {
		dependents []schema.GroupResource
		refused    []string

		wantListed []string
		want       []schema.GroupResource
		wantErr    string
	}{
		"everything": {
			wantListed: []string{"configmaps", "deployments.apps", "events.weather.test", "secrets"}, want: found,
		},
		"everything, some of which may not be listed": {
			refused: []string{"list secrets", "list deployments"}, wantListed: []string{"configmaps", "deployments.apps", "events.weather.test", "secrets"},
			wantErr: "annex-controller may not list deployments.apps, list secrets, where dependents of objects with new UIDs have to be repaired" + toMend,
		},
		"what is named": {
			dependents: kinds("/configmaps"), refused: []string{"list secrets", "list deployments"}, wantListed: []string{"configmaps"}, want: found,
		},
		"what is named, which may not be listed": {
			dependents: kinds("/configmaps", "/secrets"), refused: []string{"list secrets"}, wantListed: []string{"configmaps", "secrets"},
			wantErr: "annex-controller may not list secrets, where dependents of objects with new UIDs have to be repaired" + toMend,
		},
		"dependents that may not be patched": {
			dependents: kinds("/configmaps"), refused: []string{"patch configmaps"}, wantListed: []string{"configmaps"}, want: found,
			wantErr: "annex-controller may not patch configmaps, where dependents of objects with new UIDs have to be repaired" + toMend,
		},
		"a whole group, none of whose objects is a dependent": {
			dependents: kinds("apps/*"), refused: []string{"patch configmaps"}, wantListed: []string{"deployments.apps"}, want: []schema.GroupResource{},
		},
		"any group": {
			dependents: kinds("*/secrets", "*/deployments"), wantListed: []string{"deployments.apps", "secrets"}, want: []schema.GroupResource{},
		},
		"the group itself": {
			dependents: kinds(labGroup+"/*", labGroup+"/none"), want: []schema.GroupResource{},
		},
		"names that are none": {
			dependents: kinds("/configmap", "apps/configmaps", "/events", "aps/*"),
			wantErr: "the cluster has no *.aps, configmap, configmaps.apps, where dependents of objects with new UIDs have to be looked for: " +
				"correct rbac.dependents and rbac.adoptedGroups of the chart (--dependents)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{})
			l.discover(t)
			l.refuse(tc.refused...)
			l.Dependents = tc.dependents
			got, err := l.repairable(t.Context(), labGroup, hostcopy.Owners{"old": "new"})
			message := ""
			if err != nil {
				message = oneLine(err)
			}
			if diff := cmp.Diff(tc.wantErr, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if (err != nil) != waitsForUser(err) {
				t.Errorf("the release waits for a user: %t", waitsForUser(err))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("resources with dependents (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantListed, l.listed()); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReleaseIsHeldForDependents has an object with a new UID whose dependents
// cannot be looked for: annex goes on serving until they can.
func TestReleaseIsHeldForDependents(t *testing.T) {
	l := startLab(t, setup{
		status: annexedStatus(time.Now(), metav1.ConditionFalse), services: routes(), deleting: true,
		spec: kubeannexv1alpha1.AnnexedGroupSpec{AllowNewUIDs: true},
	})
	l.discover(t)
	l.refuse("list secrets")
	group, _, err := l.run(t)
	if err != nil || group.Status.Phase != kubeannexv1alpha1.PhaseReleaseFencing {
		t.Fatalf("without new UIDs nothing is looked for: phase %s, error %v", group.Status.Phase, err)
	}
	l.annex.change(func(group *kubeannexv1alpha1.AnnexedGroup) { group.Status.Phase = kubeannexv1alpha1.PhaseReleasing })
	l.releases.get(group).owners["old"] = "new"

	group, result, err := l.run(t)
	if err != nil || result.RequeueAfter != refusalPause {
		t.Errorf("looked at again after %s, error %v, want a pause of %s", result.RequeueAfter, err, refusalPause)
	}
	held := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionProgressing)
	if held.Reason != "HeldUp" || !strings.Contains(held.Message, "may not list secrets") {
		t.Errorf("Progressing is %s %q, want HeldUp and what may not be listed", held.Reason, held.Message)
	}
	if got := shortStatus(group); got != "Releasing/Open" {
		t.Errorf("the release is at %s, want Releasing/Open", got)
	}

	l.Dependents = kinds("/configmaps")
	if group, _, err = l.run(t); err != nil || group.Status.Phase != kubeannexv1alpha1.PhaseReleaseFencing {
		t.Errorf("after the operator has named the kinds the phase is %s, error %v", group.Status.Phase, err)
	}
	if diff := cmp.Diff(kinds("/configmaps"), l.releases.get(group).dependents); diff != "" {
		t.Errorf("resources with dependents (-want +got):\n%s", diff)
	}
}
