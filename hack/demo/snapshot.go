// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// state is what an object is, all fields but the resourceVersion.
type state struct {
	uid  types.UID
	hash [sha256.Size]byte
}

// snapshot is the state of every object of a resource, by namespace and name.
type snapshot map[string]state

// snapshot reads all objects through kube-apiserver.
func (d *demo) snapshot(ctx context.Context, set *dataset) (snapshot, error) {
	list, err := d.client.Resource(set.GroupVersionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", set.title(), err)
	}
	all := snapshot{}
	for i := range list.Items {
		object := &list.Items[i]
		unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
		content, err := object.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", object.GetName(), err)
		}
		all[keyOf(object)] = state{uid: object.GetUID(), hash: sha256.Sum256(content)}
	}
	return all, nil
}

// compare returns an error that names the first object that is missing, new or
// other than before. Of the objects in changed only the UID must be the same.
func (s snapshot) compare(after snapshot, changed map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		now, found := after[key]
		_, mayDiffer := changed[key]
		switch {
		case !found:
			return fmt.Errorf("%s is lost", key)
		case now.uid != s[key].uid:
			return fmt.Errorf("%s has UID %s and had %s", key, now.uid, s[key].uid)
		case now.hash != s[key].hash && !mayDiffer:
			return fmt.Errorf("%s is not what it was", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, found := s[key]; !found {
			return fmt.Errorf("%s has appeared", key)
		}
	}
	return nil
}
