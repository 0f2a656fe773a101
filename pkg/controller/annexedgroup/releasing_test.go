// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
)

func ownedBy(uids ...types.UID) []metav1.OwnerReference {
	var references []metav1.OwnerReference
	for _, uid := range uids {
		references = append(references, metav1.OwnerReference{Kind: "Gadget", Name: "g", UID: uid})
	}
	return references
}

func TestOwnersAreRepaired(t *testing.T) {
	owners := hostcopy.Owners{"old-1": "new-1", "old-2": "new-2"}
	cases := map[string]struct {
		references []metav1.OwnerReference
		want       []metav1.OwnerReference
		wantChange bool
	}{
		"none":                {},
		"others only":         {references: ownedBy("a", "b"), want: ownedBy("a", "b")},
		"one of several":      {references: ownedBy("a", "old-2"), want: ownedBy("a", "new-2"), wantChange: true},
		"all":                 {references: ownedBy("old-1", "old-2"), want: ownedBy("new-1", "new-2"), wantChange: true},
		"one that was mended": {references: ownedBy("new-1"), want: ownedBy("new-1")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := append([]metav1.OwnerReference(nil), tc.references...)
			got, changed := repaired(tc.references, owners)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
			if changed != tc.wantChange {
				t.Errorf("changed is %t, want %t", changed, tc.wantChange)
			}
			if diff := cmp.Diff(before, tc.references); diff != "" {
				t.Errorf("the argument was changed:\n%s", diff)
			}
		})
	}
}

func TestCopyIsUsable(t *testing.T) {
	cases := map[string]struct {
		copied   copied
		deleting bool
		want     bool
	}{
		"the same UID":                        {copied: copied{uid: "a", version: "10"}, want: true},
		"of an earlier object":                {copied: copied{uid: "b", version: "10"}},
		"made by the release":                 {copied: copied{uid: "b", version: "101"}, want: true},
		"half deleted by the release":         {copied: copied{uid: "b", version: "101", deleting: true}},
		"made by the release, being deleted":  {copied: copied{uid: "b", version: "101", deleting: true}, deleting: true, want: true},
		"written at the very revision before": {copied: copied{uid: "b", version: "100"}},
		"half deleted by somebody":            {copied: copied{uid: "a", version: "90", deleting: true}},
		"being deleted on both sides":         {copied: copied{uid: "a", version: "90", deleting: true}, deleting: true, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &releaseCopies{since: 100}
			if got := c.usable(tc.copied, "a", tc.deleting); got != tc.want {
				t.Errorf("usable is %t, want %t", got, tc.want)
			}
		})
	}
	unknown := &releaseCopies{}
	if unknown.usable(copied{uid: "b", version: "5"}, "a", false) {
		t.Error("without a revision nothing was made by the release")
	}
}

func TestDifferencesOfARound(t *testing.T) {
	present := func(objects ...string) map[string]metav1.PartialObjectMetadata {
		result := map[string]metav1.PartialObjectMetadata{}
		for i := 0; i < len(objects); i += 3 {
			result[objects[i]] = metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(objects[i+1]), ResourceVersion: objects[i+2]}}
		}
		return result
	}
	c := &releaseCopies{
		sources: map[string]source{
			"a": {uid: "ua", version: "1"},
			"b": {uid: "ub", version: "1", owners: []types.UID{"ua"}, written: []types.UID{"ua"}},
		},
		copies: map[string]copied{"a": {}, "b": {}},
	}
	cases := map[string]struct {
		present               map[string]metav1.PartialObjectMetadata
		owners                hostcopy.Owners
		wantChanged, wantGone []string
	}{
		"nothing":                      {present: present("a", "ua", "1", "b", "ub", "1")},
		"one was written":              {present: present("a", "ua", "2", "b", "ub", "1"), wantChanged: []string{"a"}},
		"one was replaced":             {present: present("a", "ux", "1", "b", "ub", "1"), wantChanged: []string{"a"}},
		"one is new":                   {present: present("a", "ua", "1", "b", "ub", "1", "c", "uc", "1"), wantChanged: []string{"c"}},
		"one has gone":                 {present: present("b", "ub", "1"), wantGone: []string{"a"}},
		"an owner has another UID now": {present: present("a", "ua", "1", "b", "ub", "1"), owners: hostcopy.Owners{"ua": "ux"}, wantChanged: []string{"b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed, gone := c.differences(tc.present, tc.owners)
			if diff := cmp.Diff(tc.wantChanged, changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantGone, gone); diff != "" {
				t.Errorf("gone (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusalNamesObjects(t *testing.T) {
	var many []string
	for _, name := range "zyxwvutsrqpo" {
		many = append(many, "ns/"+string(name))
	}
	refusals := appendUnborn(appendUnborn(nil, "gadgets", many), "planets", []string{"earth"})
	refusals = appendUnborn(refusals, "morphs", nil)
	err := newUIDRefusal(refusals)
	const want = "the cluster has no copy of 12 gadgets (ns/o, ns/p, ns/q, ns/r, ns/s, ns/t, ns/u, ns/v, ns/w, ns/x and 2 more), 1 planets (earth): " +
		"set spec.allowNewUIDs to release them with new UIDs, or delete them, annex serves the group until then"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if !errors.Is(err, errNewUIDs) {
		t.Error("the refusal is not recognised")
	}
	if err := newUIDRefusal(nil); err != nil {
		t.Errorf("nothing to refuse: %v", err)
	}
}

func TestLatestCopies(t *testing.T) {
	got := latestCopies([]copyMetadata{{"b", 5}, {"a", 5}, {"c", 9}})
	if diff := cmp.Diff("c, a, b (3 objects)", got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestKeptVersions(t *testing.T) {
	cases := map[string]struct{ annex, cluster, want []string }{
		"the same":            {[]string{"v1"}, []string{"v1"}, []string{"v1"}},
		"one was dropped":     {[]string{"v1beta1", "v1"}, []string{"v1"}, []string{"v1"}},
		"annex has fewer":     {[]string{"v1"}, []string{"v1beta1", "v1"}, []string{"v1"}},
		"nothing in common":   {[]string{"v1"}, []string{"v2"}, []string{"v1"}},
		"the cluster is mute": {[]string{"v1"}, nil, []string{"v1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, keptVersions(tc.annex, tc.cluster)); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResourcesWithDependents(t *testing.T) {
	pods, jobs := schema.GroupVersionResource{Version: "v1", Resource: "pods"}, schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	got := resourcesWith([]dependent{{resource: jobs, name: "a"}, {resource: pods, name: "b"}, {resource: jobs, name: "c"}})
	if diff := cmp.Diff([]schema.GroupResource{pods.GroupResource(), jobs.GroupResource()}, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func TestDefinitionIsOpenedAndClosed(t *testing.T) {
	original := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.lab.annex.test"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "lab.annex.test",
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook:  &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Required: []string{"spec"},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}}},
				}}},
				{Name: "v1beta1", Served: true},
			},
		},
	}
	open, err := opened("100")(original)
	if err != nil {
		t.Fatal(err)
	}
	again, err := opened("200")(open)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(open, again); diff != "" {
		t.Errorf("the second time changed it:\n%s", diff)
	}
	private := open.Spec.Versions[len(open.Spec.Versions)-1]
	if private.Name != kubeannexv1alpha1.PrivateVersion || !private.Served || private.Storage || len(private.Schema.OpenAPIV3Schema.Required) > 0 {
		t.Errorf("the private version is %+v", private)
	}
	if open.Annotations[releaseRevisionAnnotation] != "100" || open.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("annotations %v, conversion %v", open.Annotations, open.Spec.Conversion)
	}
	mirror, err := mirrorOf(open)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(original.Spec, mirror.Spec); diff != "" {
		t.Errorf("what annex has of it (-want +got):\n%s", diff)
	}
	closed, err := untouched(open)
	if err == nil {
		closed, err = unheld(closed)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(closed.Annotations) == 0 {
		closed.Annotations = nil
	}
	if len(closed.Finalizers) == 0 {
		closed.Finalizers = nil
	}
	if diff := cmp.Diff(original, closed); diff != "" {
		t.Errorf("the definition after a release (-want +got):\n%s", diff)
	}
}
