// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
)

const (
	// releaseRevisionAnnotation is the cluster's revision when the release began.
	// A copy that is newer was made by the release, see releaseCopies.made.
	releaseRevisionAnnotation = "kubeannex.io/release-revision"
	// copyWriters is how many copies are written or deleted at a time.
	copyWriters = 16
	// deletePage is how many copies are listed at a time to be deleted.
	deletePage = 1000
)

// change is a change of a definition.
type change = func(*apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error)

// opened opens the private route for writing: like touched, but with a schema
// that refuses nothing which annex has stored. A revision is noted once.
func opened(revision string) change {
	return func(definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
		definition, err := touched(definition)
		if err != nil {
			return nil, err
		}
		storage := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
		private := hostcopy.Relax(&definition.Spec.Versions[storage])
		makePrivate(private)
		for i := range definition.Spec.Versions {
			if definition.Spec.Versions[i].Name == kubeannexv1alpha1.PrivateVersion {
				definition.Spec.Versions[i] = *private
			}
		}
		if revision != "" && definition.Annotations[releaseRevisionAnnotation] == "" {
			definition.Annotations = maps.Clone(definition.Annotations)
			if definition.Annotations == nil {
				definition.Annotations = map[string]string{}
			}
			definition.Annotations[releaseRevisionAnnotation] = revision
		}
		return definition, nil
	}
}

// changeDefinition applies a change to one definition of the host. It is no error when it is gone.
func (r *Reconciler) changeDefinition(ctx context.Context, name string, change change) error {
	definitions := r.Connections.Host.Definitions.ApiextensionsV1().CustomResourceDefinitions()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed, err := change(current)
		if err != nil || apiequality.Semantic.DeepEqual(current, changed) {
			return err
		}
		_, err = definitions.Update(ctx, changed, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("changing definition %s of the cluster: %w", name, err)
	}
	return nil
}

// awaitPrivate waits until every kube-apiserver serves the private version of resources.
func (r *Reconciler) awaitPrivate(ctx context.Context, resources []resource) error {
	return r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		return r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			for _, res := range resources {
				if _, err := revisionAt(ctx, server, res.private()); err != nil {
					return fmt.Errorf("asking for the private version of %s: %w", res.plural, err)
				}
			}
			return nil
		})
	})
}

// awaitNoPrivate waits until no kube-apiserver serves the private version any
// more: from then on it knows the definitions, and their conversion, as they were.
// It returns whether one did not answer at all meanwhile.
func (r *Reconciler) awaitNoPrivate(ctx context.Context, resources []resource) (bool, error) {
	var away atomic.Bool
	err := r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		return r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			for _, res := range resources {
				_, err := revisionAt(ctx, server, res.private())
				if err == nil {
					return fmt.Errorf("it still serves the private version of %s", res.plural)
				}
				if !apierrors.IsNotFound(err) {
					if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
						away.Store(true) // no answer of an API server
					}
					return fmt.Errorf("asking for the private version of %s: %w", res.plural, err)
				}
			}
			return nil
		})
	})
	return away.Load(), err
}

// deleteCopies deletes all copies that the host keeps of a resource, finalizers
// notwithstanding, and tells after every page how many that were. It can be
// interrupted and run again.
func (r *Reconciler) deleteCopies(ctx context.Context, res resource, progress func(ctx context.Context, deleted int) error) error {
	writer := &hostcopy.Writer{Client: r.Connections.Host.Dynamic, Resource: res.private()}
	for {
		// What was deleted is not listed again, so the first page is always the next one.
		list, err := r.Connections.Host.Metadata.Resource(res.private()).List(ctx, metav1.ListOptions{Limit: deletePage})
		if err != nil {
			return fmt.Errorf("listing the cluster's copies of %s: %w", res.plural, err)
		}
		if len(list.Items) == 0 {
			return nil
		}
		tasks, inner := errgroup.WithContext(ctx)
		tasks.SetLimit(copyWriters)
		for i := range list.Items {
			tasks.Go(func() error {
				if err := writer.Delete(inner, &list.Items[i]); err != nil {
					return fmt.Errorf("deleting the cluster's copy of %s %s: %w", res.plural, keyOf(&list.Items[i]), err)
				}
				return nil
			})
		}
		if err := tasks.Wait(); err != nil {
			return err
		}
		if err := progress(ctx, len(list.Items)); err != nil {
			return err
		}
	}
}
