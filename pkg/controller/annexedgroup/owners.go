// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/pkg/controller/ownerhold"
	"github.com/kubeannex/annex/pkg/gone"
)

const (
	// dependentPage is how many objects are listed at a time, by their metadata.
	dependentPage = 1000
	// maxRepairs bounds how often dependents are looked for that name old UIDs.
	// Controllers make new ones only as long as their caches are old.
	maxRepairs = 20
)

// dependent is an object that names an owner by a UID that the owner lost.
type dependent struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func (r *Reconciler) holds() *ownerhold.Holds {
	return &ownerhold.Holds{Client: r.Connections.Host.Kube, Webhook: r.Connections.WebhookClient(), Namespace: r.Connections.Namespace}
}

// holdCollector keeps the garbage collector off, on every kube-apiserver.
func (r *Reconciler) holdCollector(ctx context.Context, group string, dependents []schema.GroupResource) error {
	if err := r.holds().Raise(ctx, group, dependents); err != nil {
		return err
	}
	return r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		return r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			return ownerhold.Check(ctx, server.Kube, r.Connections.Namespace, group)
		})
	})
}

// resourcesWith are the resources of dependents, sorted, each once.
func resourcesWith(dependents []dependent) []schema.GroupResource {
	resources := []schema.GroupResource{}
	for _, d := range dependents {
		if !slices.Contains(resources, d.resource.GroupResource()) {
			resources = append(resources, d.resource.GroupResource())
		}
	}
	slices.SortFunc(resources, func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return resources
}

// findDependents lists the metadata of everything that is searched, but for the
// group itself, and returns what names one of the owners by its old UID.
func (r *Reconciler) findDependents(ctx context.Context, group string, owners hostcopy.Owners) ([]dependent, error) {
	s, err := r.searchFor(group)
	if err != nil {
		return nil, err
	}
	return r.dependentsIn(ctx, s.resources, owners)
}

// mayDepend says that objects of a resource can have owners that the garbage
// collector looks after. It ignores the events of both groups and no others
// (kubernetes/pkg/controller/garbagecollector.DefaultIgnoredResources).
func mayDepend(kind schema.GroupResource, resource *metav1.APIResource) bool {
	if kind.Resource == "events" && (kind.Group == "" || kind.Group == "events.k8s.io") {
		return false
	}
	return slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "patch")
}

// dependentsIn fails with all resources that may not be listed, because each of them may have dependents.
func (r *Reconciler) dependentsIn(ctx context.Context, resources []schema.GroupVersionResource, owners hostcopy.Owners) ([]dependent, error) {
	var mu sync.Mutex
	var found []dependent
	var refused []schema.GroupResource
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(parallelLists)
	for _, resource := range resources {
		tasks.Go(func() error {
			err := r.eachOwned(ctx, resource, func(object *metav1.PartialObjectMetadata) {
				if _, changed := repaired(object.OwnerReferences, owners); changed {
					mu.Lock()
					defer mu.Unlock()
					found = append(found, dependent{resource: resource, namespace: object.Namespace, name: object.Name})
				}
			})
			if apierrors.IsForbidden(err) {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, resource.GroupResource())
				return nil
			}
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	return found, mayNotSearch("list", refused)
}

// eachOwned lists a resource by metadata. One that has gone has no objects.
func (r *Reconciler) eachOwned(ctx context.Context, resource schema.GroupVersionResource, take func(*metav1.PartialObjectMetadata)) error {
	options := metav1.ListOptions{Limit: dependentPage}
	for {
		list, err := r.Connections.Host.Metadata.Resource(resource).List(ctx, options)
		if token := freshToken(err); token != "" && token != options.Continue {
			options.Continue = token
			continue
		}
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for dependents among %s: %w", resource.GroupResource(), err)
		}
		for i := range list.Items {
			take(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// repaired returns references with the UIDs that owners have now, and whether any differs.
func repaired(references []metav1.OwnerReference, owners hostcopy.Owners) ([]metav1.OwnerReference, bool) {
	changed := false
	result := slices.Clone(references)
	for i := range result {
		if uid, ok := owners[result[i].UID]; ok {
			result[i].UID, changed = uid, true
		}
	}
	return result, changed
}

// repairDependents makes all dependents name their owners by the new UIDs. It
// looks again until none is found.
func (r *Reconciler) repairDependents(ctx context.Context, group string, owned []resource, owners hostcopy.Owners) error {
	var own []schema.GroupVersionResource
	for _, res := range owned {
		if len(res.served) > 0 {
			own = append(own, res.storage.GroupResource().WithVersion(res.served[0]))
		}
	}
	for range maxRepairs {
		found, err := r.findDependents(ctx, group, owners)
		if err != nil {
			return err
		}
		more, err := r.dependentsIn(ctx, own, owners)
		if err != nil {
			return err
		}
		if found = append(found, more...); len(found) == 0 {
			return nil
		}
		// Where the garbage collector shares its identity it is kept off where dependents are.
		if err := r.holdCollector(ctx, group, resourcesWith(found)); err != nil {
			return err
		}
		tasks, inner := errgroup.WithContext(ctx)
		tasks.SetLimit(copyWriters)
		for _, d := range found {
			tasks.Go(func() error { return r.repair(inner, d, owners) })
		}
		if err := tasks.Wait(); err != nil {
			return err
		}
	}
	return errors.New("new dependents with old UIDs keep coming: look for a controller that creates them from an old cache and restart it")
}

// repair changes one dependent. The patch holds for the object that was read only.
func (r *Reconciler) repair(ctx context.Context, d dependent, owners hostcopy.Owners) error {
	objects := r.Connections.Host.Metadata.Resource(d.resource).Namespace(d.namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := objects.Get(ctx, d.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		references, changed := repaired(object.OwnerReferences, owners)
		if !changed {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": object.UID, "resourceVersion": object.ResourceVersion, "ownerReferences": references,
		}})
		if err != nil {
			return err
		}
		_, err = objects.Patch(ctx, d.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	// In a namespace that is gone nobody can write to it.
	if err == nil || gone.Object(err, d.name) || gone.Object(err, d.namespace) {
		return nil
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: let annex-controller patch it, the garbage collector is kept off until then", err)
	}
	return fmt.Errorf("repairing the ownerReferences of %s %s/%s: %w", d.resource.GroupResource(), d.namespace, d.name, err)
}
