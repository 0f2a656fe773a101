// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/preflight"
)

// warn tells of replicas that the server knows nothing of: they have not begun to tell
// each other what they see, or cannot. Those that it misses it warns of itself. Who may not see how
// many there are is not told.
func (o *Options) warn(ctx context.Context, list *kubeannexv1alpha1.ListProfileList) {
	clients, err := o.factory.Preflight()
	if err != nil {
		return
	}
	running, err := replicasOf(ctx, clients)
	if err != nil {
		return
	}
	shown := len(replicas(list))
	if unknown := running - shown - len(list.Missing); unknown > 0 {
		fmt.Fprintf(o.ErrOut, "Warning: annex runs %d replicas and these are the reads of %d: the others are older, or their logs say why they do not tell what they see.\n", running, shown)
	}
}

// replicasOf is how many processes answer for annex behind the Service that the
// cluster knows it by. It is 0 where the cluster knows none or not how many they are.
func replicasOf(ctx context.Context, clients preflight.Clients) (int, error) {
	name := kubeannexv1alpha1.SchemeGroupVersion.Version + "." + kubeannexv1alpha1.GroupName
	registered, err := clients.APIServices.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && registered.Spec.Service == nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	service := registered.Spec.Service
	list, err := clients.Kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name,
	})
	if err != nil {
		return 0, err
	}
	return count(list.Items), nil
}

// count counts the endpoints that are ready. One that is reached by addresses of
// two types is in a slice of each.
func count(all []discoveryv1.EndpointSlice) int {
	byType := map[discoveryv1.AddressType]sets.Set[string]{}
	most := 0
	for i := range all {
		addresses := byType[all[i].AddressType]
		if addresses == nil {
			addresses = sets.New[string]()
			byType[all[i].AddressType] = addresses
		}
		for _, endpoint := range all[i].Endpoints {
			if (endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready) && len(endpoint.Addresses) > 0 {
				addresses.Insert(endpoint.Addresses[0])
			}
		}
		most = max(most, addresses.Len())
	}
	return most
}
