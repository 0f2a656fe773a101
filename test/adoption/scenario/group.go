// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
)

// Group is an API group of one test: gadgets (namespaced, v1 and v1beta1) and
// planets (cluster-scoped, v1), and morphs where asked for.
type Group struct {
	// Name is the group.
	Name string
	// Namespaces hold the gadgets. No other group has objects there.
	Namespaces []string

	cluster *Cluster
	// resources are all resources in the version that is stored, served all in every version that is served.
	resources, served []schema.GroupVersionResource
}

// NewGroup installs the definitions of a new group at the host. With a webhook
// there are also morphs, whose versions v1 and v2 it converts. The name
// must not be used by another test of the same cluster.
func (c *Cluster) NewGroup(tb testing.TB, name string, webhook *env.ConversionWebhook) *Group {
	tb.Helper()
	g := c.NamedGroup(name)
	config := c.HostConfig(tb, 0)
	for _, namespace := range g.Namespaces {
		if err := env.EnsureNamespace(Context(tb), config, namespace); err != nil {
			tb.Fatal(err)
		}
	}
	fixtures := []func() (*apiextensionsv1.CustomResourceDefinition, error){env.GadgetCRD, selectablePlanetCRD}
	if webhook != nil {
		fixtures = append(fixtures, func() (*apiextensionsv1.CustomResourceDefinition, error) { return env.MorphCRD(webhook) })
	}
	for _, fixture := range fixtures {
		crd, err := fixture()
		if err != nil {
			tb.Fatal(err)
		}
		g.Install(tb, crd)
	}
	return g
}

// selectablePlanetCRD has a selectable field in its only version: the private
// version that annex adds must not spoil that.
func selectablePlanetCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := env.PlanetCRD()
	if err != nil {
		return nil, err
	}
	version := &crd.Spec.Versions[0]
	spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties = map[string]apiextensionsv1.JSONSchemaProps{"star": {Type: "string"}}
	version.Schema.OpenAPIV3Schema.Properties["spec"] = spec
	version.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.star"}}
	return crd, nil
}

// NamedGroup returns a group without installing anything for it.
func (c *Cluster) NamedGroup(name string) *Group {
	short, _, _ := strings.Cut(name, ".")
	return &Group{Name: name, Namespaces: []string{short + "-a", short + "-b"}, cluster: c}
}

// Install moves a definition into the group, installs it at the host and waits
// until every kube-apiserver serves all its versions.
func (g *Group) Install(tb testing.TB, crd *apiextensionsv1.CustomResourceDefinition) {
	tb.Helper()
	crd.Spec.Group = g.Name
	crd.Name = crd.Spec.Names.Plural + "." + g.Name
	if strings.HasSuffix(g.Name, ".k8s.io") {
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, "api-approved.kubernetes.io", "unapproved, a test")
	}
	ctx := Context(tb)
	if err := env.InstallCRD(ctx, g.cluster.HostConfig(tb, 0), crd); err != nil {
		tb.Fatal(err)
	}
	for _, version := range crd.Spec.Versions {
		gvr := schema.GroupVersionResource{Group: g.Name, Version: version.Name, Resource: crd.Spec.Names.Plural}
		if version.Storage {
			g.resources = append(g.resources, gvr)
		}
		if version.Served {
			g.served = append(g.served, gvr)
			g.WaitServed(tb, gvr)
		}
	}
}

// WaitServed waits until every kube-apiserver answers a list of a resource from
// its cache, or from annex's.
func (g *Group) WaitServed(tb testing.TB, gvr schema.GroupVersionResource) {
	tb.Helper()
	for i := range g.cluster.Host.APIServers {
		client := g.Client(tb, g.cluster.HostConfig(tb, i), gvr)
		err := Poll(Context(tb), func(ctx context.Context) error {
			_, err := client.List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: "0"})
			return err
		})
		if err != nil {
			tb.Fatalf("waiting for %s: %v", gvr, err)
		}
	}
}

// Gadgets names a resource of the group.
func (g *Group) Gadgets(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: g.Name, Version: version, Resource: "gadgets"}
}

// Planets names the planets of the group.
func (g *Group) Planets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: g.Name, Version: "v1", Resource: "planets"}
}

// Morphs names the morphs of the group.
func (g *Group) Morphs(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: g.Name, Version: version, Resource: "morphs"}
}

// Resources are all resources of the group in the version that is stored.
func (g *Group) Resources() []schema.GroupVersionResource { return slices.Clone(g.resources) }

// Client returns a client of a resource at the server of config.
func (g *Group) Client(tb testing.TB, config *rest.Config, gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	tb.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return client.Resource(gvr)
}

// HostClient is Client at the first kube-apiserver.
func (g *Group) HostClient(tb testing.TB, gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	tb.Helper()
	return g.Client(tb, g.cluster.HostConfig(tb, 0), gvr)
}

// Definition returns a definition of the host.
func (g *Group) Definition(tb testing.TB, plural string) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	client, err := apiextensionsclient.NewForConfig(g.cluster.HostConfig(tb, 0))
	if err != nil {
		tb.Fatal(err)
	}
	crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(Context(tb), plural+"."+g.Name, metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return crd
}

// CheckNoPrivateVersion returns a check for Poll: a definition of the host has no private version.
func (g *Group) CheckNoPrivateVersion(tb testing.TB, plural string) func(context.Context) error {
	return func(context.Context) error {
		for _, version := range g.Definition(tb, plural).Spec.Versions {
			if version.Name == kubeannexv1alpha1.PrivateVersion {
				return errors.New("it has the version " + version.Name)
			}
		}
		return nil
	}
}

// Adopt creates the AnnexedGroup.
func (g *Group) Adopt(tb testing.TB, spec kubeannexv1alpha1.AnnexedGroupSpec) {
	tb.Helper()
	group := &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: g.Name}, Spec: spec}
	err := Poll(Context(tb), func(ctx context.Context) error {
		_, err := g.cluster.Groups.KubeannexV1alpha1().AnnexedGroups().Create(ctx, group, metav1.CreateOptions{})
		if apierrors.IsInvalid(err) {
			tb.Fatal(err)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// Delete deletes the AnnexedGroup, which releases the group or undoes its adoption.
func (g *Group) Delete(tb testing.TB) {
	tb.Helper()
	if err := g.cluster.Groups.KubeannexV1alpha1().AnnexedGroups().Delete(Context(tb), g.Name, metav1.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// Follow calls look with every state of the AnnexedGroup until it returns true.
// Nil stands for the absent object. The connection may break meanwhile.
func (g *Group) Follow(ctx context.Context, look func(*kubeannexv1alpha1.AnnexedGroup) bool) error {
	groups := g.cluster.Groups.KubeannexV1alpha1().AnnexedGroups()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, g.Name).String()}
	return Poll(ctx, func(ctx context.Context) error {
		list, err := groups.List(ctx, options)
		if err != nil {
			return err
		}
		var group *kubeannexv1alpha1.AnnexedGroup
		if len(list.Items) > 0 {
			group = &list.Items[0]
		}
		if look(group) {
			return nil
		}
		follow := options
		follow.ResourceVersion = list.ResourceVersion
		stream, err := groups.Watch(ctx, follow)
		if err != nil {
			return err
		}
		defer stream.Stop()
		for event := range stream.ResultChan() {
			group, ok := event.Object.(*kubeannexv1alpha1.AnnexedGroup)
			if !ok {
				break
			}
			if event.Type == "DELETED" {
				group = nil
			}
			if look(group) {
				return nil
			}
		}
		return fmt.Errorf("the watch of AnnexedGroup %s ended", g.Name)
	})
}

// WaitPhase waits until the AnnexedGroup is in one of the phases, and returns it.
func (g *Group) WaitPhase(tb testing.TB, phases ...kubeannexv1alpha1.AnnexedGroupPhase) *kubeannexv1alpha1.AnnexedGroup {
	tb.Helper()
	return g.WaitFor(tb, fmt.Sprintf("phase %v", phases), func(group *kubeannexv1alpha1.AnnexedGroup) bool {
		return group != nil && slices.Contains(phases, group.Status.Phase)
	})
}

// WaitGone waits until the AnnexedGroup has disappeared.
func (g *Group) WaitGone(tb testing.TB) {
	tb.Helper()
	g.WaitFor(tb, "the end of the object", func(group *kubeannexv1alpha1.AnnexedGroup) bool { return group == nil })
}

// WaitCondition waits until a condition has a status, and returns it.
func (g *Group) WaitCondition(tb testing.TB, conditionType string, status metav1.ConditionStatus) metav1.Condition {
	tb.Helper()
	var found metav1.Condition
	g.WaitFor(tb, fmt.Sprintf("%s=%s", conditionType, status), func(group *kubeannexv1alpha1.AnnexedGroup) bool {
		if group == nil {
			return false
		}
		condition := meta.FindStatusCondition(group.Status.Conditions, conditionType)
		if condition == nil || condition.Status != status {
			return false
		}
		found = *condition
		return true
	})
	return found
}

// WaitFor waits until the AnnexedGroup (nil when absent) is as wanted, and returns it.
func (g *Group) WaitFor(tb testing.TB, what string, wanted func(*kubeannexv1alpha1.AnnexedGroup) bool) *kubeannexv1alpha1.AnnexedGroup {
	tb.Helper()
	var last *kubeannexv1alpha1.AnnexedGroup
	err := g.Follow(Context(tb), func(group *kubeannexv1alpha1.AnnexedGroup) bool {
		last = group
		return wanted(group)
	})
	if err != nil {
		tb.Fatalf("waiting for %s of AnnexedGroup %s: %v\nlast state: %s", what, g.Name, err, Describe(last))
	}
	return last
}

// Describe shows what an AnnexedGroup tells an operator.
func Describe(group *kubeannexv1alpha1.AnnexedGroup) string {
	if group == nil {
		return "absent"
	}
	lines := []string{fmt.Sprintf("phase %q, serving %q", group.Status.Phase, group.Status.Serving)}
	for _, condition := range group.Status.Conditions {
		lines = append(lines, fmt.Sprintf("  %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
	}
	return strings.Join(lines, "\n")
}

// WaitRouted waits until every kube-apiserver sends all served versions of the
// group to annex (true) or answers them itself (false).
func (g *Group) WaitRouted(tb testing.TB, toAnnex bool) {
	tb.Helper()
	for i := range g.cluster.Host.APIServers {
		config := g.cluster.HostConfig(tb, i)
		err := Poll(Context(tb), func(ctx context.Context) error {
			for _, gvr := range g.served {
				list, err := g.Client(tb, config, gvr).List(ctx, metav1.ListOptions{Limit: 1})
				if err != nil {
					return err
				}
				if FromAnnex(list.GetResourceVersion()) != toAnnex {
					return fmt.Errorf("%s is listed at revision %s", gvr, list.GetResourceVersion())
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatalf("waiting for the routes of %s (annex: %t): %v", g.Name, toAnnex, err)
		}
	}
}

// FromAnnex reports whether a resource version is one of annex: they begin at 2^50.
func FromAnnex(resourceVersion string) bool { return len(resourceVersion) >= len("1125899906842624") }

// APIServices returns what matters of all APIServices of the group, by name. The
// one of the private version, which comes and goes, is left out.
func (g *Group) APIServices(tb testing.TB) map[string]any {
	tb.Helper()
	client, err := aggregatorclient.NewForConfig(g.cluster.HostConfig(tb, 0))
	if err != nil {
		tb.Fatal(err)
	}
	list, err := client.ApiregistrationV1().APIServices().List(Context(tb), metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	found := map[string]any{}
	for _, service := range list.Items {
		if service.Spec.Group == g.Name && service.Spec.Version != kubeannexv1alpha1.PrivateVersion {
			found[service.Name] = []any{service.UID, service.Labels, service.Spec}
		}
	}
	return found
}

// Poll calls check until it returns nil, or an error that names the last one when ctx is done.
func Poll(ctx context.Context, check func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if err := check(ctx); err != nil {
			if ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w, last answer: %w", context.Cause(ctx), last)
	}
	return nil
}
