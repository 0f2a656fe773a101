// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/preflight"
	"github.com/kubeannex/annex/pkg/preflight/preflighttest"
	"github.com/kubeannex/annex/test/golden"
)

// fullCluster has one of everything that a report tells of.
func fullCluster() *preflighttest.Cluster {
	cluster := preflighttest.NewCluster()
	widgets := cluster.Definitions[0]
	widgets.Annotations = map[string]string{"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "prod"}
	widgets.Status.StoredVersions = []string{"v1alpha1", "v1"}
	widgets.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{
			Service: &apiextensionsv1.ServiceReference{Namespace: "hooks", Name: "convert"},
		}},
	}
	racks := cluster.Definitions[1]
	racks.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "infra", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	cluster.APIServices[0].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "argocd-controller"}}
	cluster.Webhooks = []runtime.Object{
		preflighttest.Webhook("widgets", preflighttest.Group, "Fail", "widgets", "widgets/status"),
		preflighttest.Webhook("everything", "*", "Ignore", "*/*"),
		preflighttest.Webhook("elsewhere", "other.com", "Fail", "widgets"),
		preflighttest.Webhook("annex-fence-example.com", preflighttest.Group, "Fail", "*"),
	}
	leaving := cluster.Objects[2]
	leaving.SetFinalizers([]string{"example.com/protect"})
	leaving.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	leaving.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"}})
	cluster.Discovery = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"list"}},
			{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: []string{"create"}},
		}},
	}
	for _, owner := range []string{"example.com/v1", "example.com/v1alpha1", "apps/v1"} {
		cluster.Others = append(cluster.Others, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "of-" + owner[len(owner)-2:] + "-" + string(owner[0]),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: owner, Kind: "Widget", Name: "one"}},
			},
		})
	}
	return cluster
}

func TestReportIsPrintedWhole(t *testing.T) {
	clients, _, err := fullCluster().Clients()
	if err != nil {
		t.Fatal(err)
	}
	report, err := preflight.Collect(t.Context(), clients, preflighttest.Group, preflight.Options{})
	if err != nil {
		t.Fatalf("Collect: %v", err)
	}
	got, err := yaml.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "report.yaml", string(got))
}

func TestGroupIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		group string
		spec  kubeannexv1alpha1.AnnexedGroupSpec
		alter func(*preflighttest.Cluster)
		want  []preflight.Finding
	}{
		"that kube-apiserver has compiled in": {
			group: "apps",
			want:  []preflight.Finding{{Check: preflight.CheckGroup, Message: `metadata.name: Forbidden: group "apps" is served by kube-apiserver itself and cannot be adopted: name a group of custom resources`}},
		},
		"that is protected": {
			group: "x.k8s.io",
			want:  []preflight.Finding{{Check: preflight.CheckGroup, Message: `metadata.name: Forbidden: group "x.k8s.io" is protected: set spec.allowProtectedGroup to true if it must be adopted`}},
		},
		"that nothing defines": {
			group: "unknown.com",
			want:  []preflight.Finding{{Check: preflight.CheckDefinitions, Message: `the cluster has no CustomResourceDefinition of group "unknown.com": check its name with "kubectl get customresourcedefinitions"`}},
		},
		"with an index of a resource that is not there and of a field that cannot be selected": {
			spec: kubeannexv1alpha1.AnnexedGroupSpec{Resources: []kubeannexv1alpha1.AnnexedResourceSpec{
				{Resource: "gadgets", IndexLabels: []string{"app"}},
				{Resource: "widgets", WatchIndex: &kubeannexv1alpha1.WatchIndex{Field: "spec.size"}},
			}},
			want: []preflight.Finding{
				{Check: preflight.CheckIndexes, Message: `group "example.com" has no resource "gadgets" to index: it has racks, widgets`},
				{Check: preflight.CheckIndexes, Message: `watchIndex field "spec.size" is not selectable: add it to selectableFields of CustomResourceDefinition widgets.example.com`},
			},
		},
		"with an index that is no label": {
			spec: kubeannexv1alpha1.AnnexedGroupSpec{Resources: []kubeannexv1alpha1.AnnexedResourceSpec{{Resource: "widgets", IndexLabels: []string{"-"}}}},
			want: []preflight.Finding{{Check: preflight.CheckIndexes, Message: `spec.resources[0].indexLabels[0]: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`}},
		},
		"with a version of another server": {
			alter: func(c *preflighttest.Cluster) {
				c.APIServices[1] = preflighttest.APIService(preflighttest.Group, "v1alpha1", "shop/api")
			},
			want: []preflight.Finding{{Check: preflight.CheckAPIServices, Message: `version v1alpha1 is served by another API server, service shop/api: all versions of a group are adopted or none, so this one cannot be`}},
		},
		"that points to annex already": {
			alter: func(c *preflighttest.Cluster) {
				c.APIServices[0] = preflighttest.APIService(preflighttest.Group, "v1", "annex-system/annex")
			},
			want: []preflight.Finding{{Check: preflight.CheckAPIServices, Message: `APIService v1.example.com points to annex already: see "kubectl annex status", or "Disaster recovery" of the operations page when that does not show the group as annexed; do not change the APIService by hand`}},
		},
		"with a version that is not registered": {
			alter: func(c *preflighttest.Cluster) { c.APIServices = c.APIServices[1:] },
			want:  []preflight.Finding{{Check: preflight.CheckAPIServices, Message: `version v1 has no APIService: kube-apiserver makes it within seconds of the version being served, see its log if it does not`}},
		},
		"with definitions that no new one could equal": {
			alter: func(c *preflighttest.Cluster) {
				widgets := c.Definitions[0]
				widgets.Spec.PreserveUnknownFields = true
				widgets.Spec.Versions = append(widgets.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v0annex"})
				widgets.Status.Conditions = append(widgets.Status.Conditions,
					apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue})
			},
			want: []preflight.Finding{
				{Check: preflight.CheckDefinitions, Message: `CustomResourceDefinition widgets.example.com has a schema that is not structural, which no new definition may have: correct the schema`},
				{Check: preflight.CheckDefinitions, Message: `CustomResourceDefinition widgets.example.com sets spec.preserveUnknownFields, which no new definition may: set it to false and use x-kubernetes-preserve-unknown-fields in the schema`},
				{Check: preflight.CheckDefinitions, Message: `CustomResourceDefinition widgets.example.com already has a version v0annex, which annex uses for itself: remove it`},
			},
		},
		"with definitions that come or go": {
			alter: func(c *preflighttest.Cluster) {
				c.Definitions[0].Status.Conditions = nil
				c.Definitions[1].DeletionTimestamp = &metav1.Time{}
			},
			want: []preflight.Finding{
				{Check: preflight.CheckDefinitions, Message: `CustomResourceDefinition racks.example.com is being deleted: wait until it is gone, or remove what holds it`},
				{Check: preflight.CheckDefinitions, Message: `CustomResourceDefinition widgets.example.com is not established: see its conditions with "kubectl describe customresourcedefinition widgets.example.com"`},
			},
		},
		"with a version that somebody else registered": {
			alter: func(c *preflighttest.Cluster) { c.APIServices[0].Labels = nil },
			want:  []preflight.Finding{{Check: preflight.CheckAPIServices, Message: `APIService v1.example.com is not managed by kube-apiserver: delete it, kube-apiserver makes it anew`}},
		},
		"with a definition that does not serve what it stores": {
			alter: func(c *preflighttest.Cluster) { c.Definitions[0].Spec.Versions[0].Served = false },
			want:  []preflight.Finding{{Check: preflight.CheckDefinitions, Message: `CustomResourceDefinition widgets.example.com does not serve its storage version v1, so its objects cannot be copied: set served on that version`}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := preflighttest.NewCluster()
			if test.alter != nil {
				test.alter(cluster)
			}
			clients, _, err := cluster.Clients()
			if err != nil {
				t.Fatal(err)
			}
			group := test.group
			if group == "" {
				group = preflighttest.Group
			}
			report, err := preflight.Collect(t.Context(), clients, group, preflight.Options{Spec: test.spec})
			if err != nil {
				t.Fatalf("Collect: %v", err)
			}
			for i := range test.want {
				test.want[i].Severity = preflight.SeverityRefusal
			}
			if diff := cmp.Diff(test.want, report.Refusals()); diff != "" {
				t.Errorf("refusals differ (-want +got):\n%s", diff)
			}
		})
	}
}

// failing lets requests for a resource fail.
func failing(err error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}

func TestReadsThatFail(t *testing.T) {
	widgets := schema.GroupResource{Group: preflighttest.Group, Resource: "widgets"}
	forbidden := apierrors.NewForbidden(widgets, "", errors.New("not yours"))
	for name, test := range map[string]struct {
		alter     func(*preflighttest.Fakes)
		want      []preflight.Finding
		wantError string
	}{
		"objects that the caller may not read are not counted": {
			alter: func(f *preflighttest.Fakes) { f.Dynamic.PrependReactor("list", "widgets", failing(forbidden)) },
			want:  []preflight.Finding{{Severity: preflight.SeverityWarning, Check: preflight.CheckObjects, Message: `widgets could not be read and are not counted: widgets.example.com is forbidden: not yours`}},
		},
		"objects that nobody can read refuse the group": {
			alter: func(f *preflighttest.Fakes) {
				f.Dynamic.PrependReactor("list", "widgets", failing(apierrors.NewInternalError(errors.New("conversion failed"))))
			},
			want: []preflight.Finding{{Severity: preflight.SeverityRefusal, Check: preflight.CheckObjects, Message: `widgets cannot be listed in version v1, which the copy has to do (Internal error occurred: conversion failed): mend this first`}},
		},
		"a server that is busy is an error": {
			alter: func(f *preflighttest.Fakes) {
				f.Dynamic.PrependReactor("list", "widgets", failing(apierrors.NewTooManyRequests("busy", 1)))
			},
			wantError: "listing widgets in version v1: busy",
		},
		"webhooks and APIServices that the caller may not read are left out": {
			alter: func(f *preflighttest.Fakes) {
				f.Kube.PrependReactor("list", "*", failing(forbidden))
				f.APIServices.PrependReactor("list", "*", failing(forbidden))
			},
			want: []preflight.Finding{
				{Severity: preflight.SeverityWarning, Check: preflight.CheckAPIServices, Message: `APIServices could not be read and are left out: widgets.example.com is forbidden: not yours`},
				{Severity: preflight.SeverityWarning, Check: preflight.CheckWebhooks, Message: `MutatingWebhookConfigurations could not be read and are left out: widgets.example.com is forbidden: not yours`},
				{Severity: preflight.SeverityWarning, Check: preflight.CheckWebhooks, Message: `ValidatingWebhookConfigurations could not be read and are left out: widgets.example.com is forbidden: not yours`},
			},
		},
		"definitions that cannot be read are an error": {
			alter:     func(f *preflighttest.Fakes) { f.Definitions.PrependReactor("list", "*", failing(forbidden)) },
			wantError: "listing CustomResourceDefinitions: widgets.example.com is forbidden: not yours",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clients, fakes, err := preflighttest.NewCluster().Clients()
			if err != nil {
				t.Fatal(err)
			}
			test.alter(fakes)
			report, err := preflight.Collect(t.Context(), clients, preflighttest.Group, preflight.Options{})
			var gotError string
			if err != nil {
				gotError = err.Error()
			}
			if diff := cmp.Diff(test.wantError, gotError); diff != "" {
				t.Fatalf("error differs (-want +got):\n%s", diff)
			}
			if err != nil {
				return
			}
			var got []preflight.Finding
			for _, finding := range report.Findings {
				if finding.Severity != preflight.SeverityInfo {
					got = append(got, finding)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConversionOfWhatIsGone asks for an object by another version after it was listed: it may
// have been deleted, but a server that does not know the version has proved nothing.
func TestConversionOfWhatIsGone(t *testing.T) {
	widgets := schema.GroupResource{Group: preflighttest.Group, Resource: "widgets"}
	for name, test := range map[string]struct {
		answer    func(name string) error
		wantError bool
	}{
		"the object":  {answer: func(name string) error { return apierrors.NewNotFound(widgets, name) }},
		"the version": {answer: func(string) error { return apierrors.NewGenericServerResponse(404, "get", widgets, "", "", 0, true) }, wantError: true},
	} {
		t.Run(name, func(t *testing.T) {
			clients, fakes, err := fullCluster().Clients()
			if err != nil {
				t.Fatal(err)
			}
			// The fake server converts nothing.
			fakes.Dynamic.PrependReactor("list", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				converted := *preflighttest.Widget("one")
				return action.GetResource().Version == "v1alpha1", &unstructured.UnstructuredList{Items: []unstructured.Unstructured{converted}}, nil
			})
			asked := 0
			fakes.Dynamic.PrependReactor("get", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return true, nil, test.answer(action.(clienttesting.GetAction).GetName())
			})
			_, err = preflight.Collect(t.Context(), clients, preflighttest.Group, preflight.Options{})
			if (err != nil) != test.wantError || asked == 0 {
				t.Errorf("asked %d times, got error %v", asked, err)
			}
		})
	}
}

func TestGroupThatClustersNeedToStart(t *testing.T) {
	const message = "clusters need this group to start (pod network); adopt it only if annex can start without it"
	for name, tc := range map[string]struct {
		allow bool
		want  preflight.Finding
	}{
		"refused": {want: preflight.Finding{
			Severity: preflight.SeverityRefusal, Check: preflight.CheckStartUp,
			Message: message + ": set spec.allowProtectedGroup (--allow-protected-group) if that is so",
		}},
		"allowed": {allow: true, want: preflight.Finding{Severity: preflight.SeverityWarning, Check: preflight.CheckStartUp, Message: message}},
	} {
		t.Run(name, func(t *testing.T) {
			clients, _, err := preflighttest.NewCluster().Clients()
			if err != nil {
				t.Fatal(err)
			}
			options := preflight.Options{SkipReferences: true, Spec: kubeannexv1alpha1.AnnexedGroupSpec{AllowProtectedGroup: tc.allow}}
			report, err := preflight.Collect(t.Context(), clients, "cilium.io", options)
			if err != nil {
				t.Fatalf("Collect: %v", err)
			}
			if !slices.Contains(report.Findings, tc.want) {
				t.Errorf("findings %+v lack %+v", report.Findings, tc.want)
			}
		})
	}
}

func TestObjectsBeyondTheSampleAreReckoned(t *testing.T) {
	cluster := preflighttest.NewCluster()
	clients, fakes, err := cluster.Clients()
	if err != nil {
		t.Fatal(err)
	}
	fakes.Dynamic.PrependReactor("list", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := preflighttest.List(1, 999)
		return true, list, nil
	})
	report, err := preflight.Collect(t.Context(), clients, preflighttest.Group, preflight.Options{SampleSize: 1})
	if err != nil {
		t.Fatalf("Collect: %v", err)
	}
	widgets := report.Resources[1]
	one, err := preflighttest.Widget("0").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	// MarshalJSON ends in a line feed.
	if widgets.Objects != 1000 || widgets.Sampled != 1 || widgets.EstimatedBytes != int64(1000*(len(one)-1)) {
		t.Errorf("got %d objects, %d bytes, %d sampled", widgets.Objects, widgets.EstimatedBytes, widgets.Sampled)
	}
}

func TestFormatBytes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 5 << 30: "5.0 GiB", 1 << 62: "4194304.0 TiB"} {
		if got := preflight.FormatBytes(bytes); got != want {
			t.Errorf("FormatBytes(%d) = %q, want %q", bytes, got, want)
		}
	}
}
