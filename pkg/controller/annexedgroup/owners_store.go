// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
)

const (
	// ownersLabel marks the ConfigMaps that keep the new UIDs of a release. Its value is the group.
	ownersLabel = "kubeannex.io/owners"
	ownersKey   = "owners.json"
	// ownersPerMap keeps a ConfigMap far below the megabyte that it may have: an entry has 79 bytes.
	ownersPerMap = 5000
)

// storeOwners keeps the new UIDs in the cluster before annex stops answering,
// because they cannot be found out again after that.
func (r *Reconciler) storeOwners(ctx context.Context, group string, owners hostcopy.Owners) error {
	if err := r.deleteOwners(ctx, group); err != nil {
		return err
	}
	uids := slices.Sorted(maps.Keys(owners))
	for i := 0; len(uids) > 0; i++ {
		part := hostcopy.Owners{}
		for _, uid := range uids[:min(len(uids), ownersPerMap)] {
			part[uid] = owners[uid]
		}
		uids = uids[len(part):]
		content, err := json.Marshal(part)
		if err != nil {
			return fmt.Errorf("encoding the new UIDs: %w", err)
		}
		_, err = r.Connections.Host.Kube.CoreV1().ConfigMaps(r.Connections.Namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("annex-owners-%s-%d", group, i), Labels: map[string]string{ownersLabel: group}},
			Data:       map[string]string{ownersKey: string(content)},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("storing the new UIDs: %w", err)
		}
	}
	return nil
}

func (r *Reconciler) loadOwners(ctx context.Context, group string) (hostcopy.Owners, error) {
	list, err := r.Connections.Host.Kube.CoreV1().ConfigMaps(r.Connections.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ownersLabel + "=" + group})
	if err != nil {
		return nil, fmt.Errorf("reading the new UIDs: %w", err)
	}
	owners := hostcopy.Owners{}
	for i := range list.Items {
		part := map[types.UID]types.UID{}
		if err := json.Unmarshal([]byte(list.Items[i].Data[ownersKey]), &part); err != nil {
			return nil, fmt.Errorf("decoding the new UIDs in ConfigMap %s/%s: %w", list.Items[i].Namespace, list.Items[i].Name, err)
		}
		maps.Copy(owners, part)
	}
	return owners, nil
}

func (r *Reconciler) deleteOwners(ctx context.Context, group string) error {
	configMaps := r.Connections.Host.Kube.CoreV1().ConfigMaps(r.Connections.Namespace)
	list, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: ownersLabel + "=" + group})
	if err != nil {
		return fmt.Errorf("reading the new UIDs: %w", err)
	}
	for i := range list.Items {
		if err := configMaps.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting ConfigMap %s with new UIDs: %w", list.Items[i].Name, err)
		}
	}
	return nil
}

// compareUIDs finds out the new UIDs from both sides. Annex must answer reads.
func (r *Reconciler) compareUIDs(ctx context.Context, resources []resource) (hostcopy.Owners, error) {
	owners := hostcopy.Owners{}
	for _, res := range resources {
		copies := map[string]types.UID{}
		err := eachMetadata(ctx, r.Connections.Host, res.private(), func(items []metav1.PartialObjectMetadata) {
			for i := range items {
				copies[keyOf(&items[i])] = items[i].UID
			}
		})
		if err != nil {
			return nil, err
		}
		err = eachMetadata(ctx, r.Connections.Annex, res.storage, func(items []metav1.PartialObjectMetadata) {
			for i := range items {
				if uid, ok := copies[keyOf(&items[i])]; ok && uid != items[i].UID {
					owners[items[i].UID] = uid
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return owners, nil
}
