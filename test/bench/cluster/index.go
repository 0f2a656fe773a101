// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	clientset "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// awaitAdministrator waits until annex knows the authority that has signed the administrator's
// certificate. It learns of it from the host, which may be later than it is ready: until
// then a client sends no certificate, and a connection that began so stays anonymous.
func awaitAdministrator(ctx context.Context, annex *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, rightsInterval, true, func(ctx context.Context) (bool, error) {
		fresh := rest.CopyConfig(annex)
		// Clients with a dialer of their own share no connection.
		fresh.Dial = (&net.Dialer{}).DialContext
		client, err := clientset.NewForConfig(fresh)
		if err != nil {
			return false, fmt.Errorf("making a client of annex: %w", err)
		}
		_, last = client.KubeannexV1alpha1().AnnexedGroups().List(ctx, metav1.ListOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for annex to know its administrator: %w, last answer: %w", err, last)
	}
	return nil
}

// OpenGroup makes a group of annex one that looks adopted: its requests pass the
// serving gate, and label and watch indexes are those that an operator would name.
// Annex must not have a controller, which would start to adopt the group.
func OpenGroup(ctx context.Context, annex *rest.Config, group string) error {
	if err := awaitAdministrator(ctx, annex); err != nil {
		return err
	}
	client, err := clientset.NewForConfig(annex)
	if err != nil {
		return fmt.Errorf("making a client of annex: %w", err)
	}
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	object := &v1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: group}}
	for _, kind := range dataset.Kinds() {
		object.Spec.Resources = append(object.Spec.Resources, indexes(kind))
	}
	if object, err = groups.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the AnnexedGroup %s: %w", group, err)
	}
	object.Status.Phase, object.Status.Serving = v1alpha1.PhaseAnnexed, v1alpha1.ServingOpen
	if _, err = groups.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("opening the AnnexedGroup %s: %w", group, err)
	}
	return nil
}

// indexes are those that an operator would name for a kind.
func indexes(kind dataset.Kind) v1alpha1.AnnexedResourceSpec {
	return v1alpha1.AnnexedResourceSpec{
		Resource: kind.Resource(), IndexLabels: []string{dataset.NodeLabel},
		WatchIndex: &v1alpha1.WatchIndex{Field: dataset.NodeField},
	}
}
