// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	clientset "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// Redefine changes the definition of a kind on a side, and in annex its indexes: there
// are none without selectable fields. The server may not have followed when it
// returns, but a server that is started later has.
func Redefine(ctx context.Context, side Side, kind dataset.Kind, options dataset.DefinitionOptions) error {
	client, err := apiextensionsclient.NewForConfig(side.Config)
	if err != nil {
		return fmt.Errorf("making a client of %s: %w", side.Name, err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	wanted := dataset.Definition(side.Group, kind, options)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		definition, err := definitions.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		definition.Spec.Versions = wanted.Spec.Versions
		_, err = definitions.Update(ctx, definition, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("changing the definition of the %s on %s: %w", kind, side.Name, err)
	}
	if side.Name != SideAnnex {
		return nil
	}
	return reindex(ctx, side, kind, !options.WithoutFields)
}

// reindex sets the indexes of a kind of annex, or takes all indexes of its group away.
func reindex(ctx context.Context, annex Side, kind dataset.Kind, indexed bool) error {
	client, err := clientset.NewForConfig(annex.Config)
	if err != nil {
		return fmt.Errorf("making a client of annex: %w", err)
	}
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		group, err := groups.Get(ctx, annex.Group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		group.Spec.Resources = nil
		if indexed {
			group.Spec.Resources = []v1alpha1.AnnexedResourceSpec{indexes(kind)}
		}
		_, err = groups.Update(ctx, group, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("changing the indexes of the %s: %w", kind, err)
	}
	return nil
}
