// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
)

// anyKind stands for any group or any resource in Reconciler.Dependents, as in the
// rules of a role.
const anyKind = "*"

// errMayNotSearch holds a release. A dependent that is skipped would be deleted.
var errMayNotSearch = errors.New("grant that to annex-controller (ClusterRole annex-controller:adopted-groups), " +
	"or name all kinds that objects of the group own in rbac.dependents of the chart and set rbac.dependentsComplete (--dependents), and nothing else is searched")

// errNoSuchKind holds a release. What was meant by the name would not be searched.
var errNoSuchKind = errors.New("correct rbac.dependents and rbac.adoptedGroups of the chart (--dependents)")

// search is where dependents are looked for.
type search struct {
	resources []schema.GroupVersionResource
	// unknown are named by Reconciler.Dependents, and the cluster does not have them.
	unknown []schema.GroupResource
}

// searchFor says where dependents of a group's objects are looked for, but for the group itself.
func (r *Reconciler) searchFor(group string) (*search, error) {
	lists, err := r.Connections.Host.Kube.Discovery().ServerPreferredResources()
	if err != nil {
		// Dependents that are not found now would be deleted when their group answers again.
		return nil, fmt.Errorf("discovering the cluster's resources, among which dependents of objects with new UIDs have to be looked for: %w: mend the groups that do not answer or delete their APIServices", err)
	}
	s := &search{unknown: slices.DeleteFunc(slices.Clone(r.Dependents), func(kind schema.GroupResource) bool {
		return kind.Group == anyKind && kind.Resource == anyKind || kind.Group == group
	})}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group == group {
			continue
		}
		for i := range list.APIResources {
			found := version.WithResource(list.APIResources[i].Name)
			s.unknown = slices.DeleteFunc(s.unknown, func(kind schema.GroupResource) bool { return covers(kind, found.GroupResource()) })
			if mayDepend(found.GroupResource(), &list.APIResources[i]) && r.searches(found.GroupResource()) {
				s.resources = append(s.resources, found)
			}
		}
	}
	return s, nil
}

// searches says whether dependents may be among the objects of a resource.
func (r *Reconciler) searches(resource schema.GroupResource) bool {
	return len(r.Dependents) == 0 || slices.ContainsFunc(r.Dependents, func(kind schema.GroupResource) bool { return covers(kind, resource) })
}

func covers(kind, resource schema.GroupResource) bool {
	return (kind.Group == anyKind || kind.Group == resource.Group) && (kind.Resource == anyKind || kind.Resource == resource.Resource)
}

// repairable returns where dependents are, when all of them could be found and
// can be repaired. It is asked while annex serves the group: later there is no way back.
func (r *Reconciler) repairable(ctx context.Context, group string, owners hostcopy.Owners) ([]schema.GroupResource, error) {
	s, err := r.searchFor(group)
	if err != nil {
		return nil, err
	}
	if len(s.unknown) > 0 {
		return nil, fmt.Errorf("the cluster has no %s, where dependents of objects with new UIDs have to be looked for: %w", namedKinds("", s.unknown), errNoSuchKind)
	}
	found, err := r.dependentsIn(ctx, s.resources, owners)
	if err != nil {
		return nil, err
	}
	resources := resourcesWith(found)
	return resources, r.mayRepair(ctx, resources)
}

// mayRepair asks the cluster for the rights of repair.
func (r *Reconciler) mayRepair(ctx context.Context, resources []schema.GroupResource) error {
	for _, verb := range []string{"get", "patch"} {
		var refused []schema.GroupResource
		for _, resource := range resources {
			review, err := r.Connections.Host.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: resource.Group, Version: anyKind, Resource: resource.Resource,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking the cluster whether annex-controller may %s %s: %w", verb, resource, err)
			}
			if !review.Status.Allowed {
				refused = append(refused, resource)
			}
		}
		if err := mayNotSearch(verb, refused); err != nil {
			return err
		}
	}
	return nil
}

// mayNotSearch is the error of rights that are missing, nil if none is.
func mayNotSearch(verb string, refused []schema.GroupResource) error {
	if len(refused) == 0 {
		return nil
	}
	return fmt.Errorf("annex-controller may not %s, where dependents of objects with new UIDs have to be repaired: %w", namedKinds(verb+" ", refused), errMayNotSearch)
}

// namedKinds names the first of kinds, each after a prefix.
func namedKinds(prefix string, kinds []schema.GroupResource) string {
	names := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		names = append(names, prefix+kind.String())
	}
	return firstNames(names)
}
