// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// referenceKey is one kind of owner reference. sampled is the number of
// dependents of that kind that were looked at.
type referenceKey struct {
	owner, dependent schema.GroupKind
	sampled          int64
}

// countOwners notes the owners of an object of the group.
func (c *collector) countOwners(resource *Resource, references []metav1.OwnerReference) {
	c.count(schema.GroupKind{Group: c.group, Kind: resource.Kind}, resource.Sampled, references, func(schema.GroupKind) bool { return true })
}

func (c *collector) count(dependent schema.GroupKind, sampled int64, references []metav1.OwnerReference, wanted func(owner schema.GroupKind) bool) {
	for _, reference := range references {
		owner := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind()
		if !wanted(owner) {
			continue
		}
		if c.references == nil {
			c.references = map[referenceKey]int64{}
		}
		c.references[referenceKey{owner, dependent, sampled}]++
	}
}

// lookAtReferences searches a page of every other resource for objects that are
// owned by objects of the group.
func (c *collector) lookAtReferences(ctx context.Context) error {
	if !c.options.SkipReferences {
		if err := c.lookAtDependents(ctx); err != nil {
			return err
		}
	}
	for key, objects := range c.references {
		c.report.References = append(c.report.References, Reference{
			Owner: key.owner.String(), Dependent: key.dependent.String(), Objects: objects, Sampled: key.sampled,
		})
	}
	slices.SortFunc(c.report.References, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Dependent, b.Dependent))
	})
	for _, r := range c.report.References {
		c.addf(SeverityInfo, CheckReferences, "%s owns %s (%d of %d looked at); UIDs stay, so owner references hold, and the garbage collector waits while annex is down", r.Owner, r.Dependent, r.Objects, r.Sampled)
	}
	return nil
}

func (c *collector) lookAtDependents(ctx context.Context) error {
	lists, err := discovery.ServerPreferredResources(c.clients.Kube.Discovery())
	if failed, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		var versions []string
		for version := range failed.Groups {
			versions = append(versions, version.String())
		}
		slices.Sort(versions)
		c.addf(SeverityInfo, CheckReferences, "resources of %s could not be found out and were not searched for dependents", strings.Join(versions, ", "))
	} else if err != nil {
		return fmt.Errorf("finding out the resources of the cluster: %w", err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group == c.group {
			continue
		}
		for _, resource := range list.APIResources {
			if err := c.searchDependents(ctx, version, resource); err != nil {
				return err
			}
		}
	}
	return nil
}

// searchDependents looks at one page of metadata. Events are left out: they are
// many, and they refer to objects without being owned by them.
func (c *collector) searchDependents(ctx context.Context, version schema.GroupVersion, resource metav1.APIResource) error {
	if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
		return nil
	}
	list, err := c.clients.Metadata.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{Limit: c.options.SampleSize})
	if _, answered := errors.AsType[*apierrors.StatusError](err); answered {
		return nil // Forbidden, not there, or broken in itself: none of the group's concern.
	}
	if err != nil {
		return fmt.Errorf("searching %s for dependents: %w", resource.Name, err)
	}
	dependent := version.WithKind(resource.Kind).GroupKind()
	for i := range list.Items {
		c.count(dependent, int64(len(list.Items)), list.Items[i].OwnerReferences, func(owner schema.GroupKind) bool { return owner.Group == c.group })
	}
	return nil
}
