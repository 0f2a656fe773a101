// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// inventory is every object of the cluster by kind and name.
type inventory map[string]bool

// takeInventory lists everything that can be listed. Left out is what comes and
// goes by itself in any cluster.
func takeInventory(t *testing.T) inventory {
	t.Helper()
	config := rest.CopyConfig(suite.admin)
	config.WarningHandlerWithContext = rest.NoWarnings{} // of old kinds
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	all := inventory{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "componentstatuses" {
				continue
			}
			found, err := objects.Resource(version.WithResource(resource.Name)).List(testContext(t), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // the kind has gone since discovery, as that of a definition that is being deleted
			}
			if err != nil {
				t.Fatalf("listing %s: %v", resource.Name, err)
			}
			for j := range found.Items {
				item := &found.Items[j]
				if item.Namespace == metav1.NamespaceSystem && resource.Name == "serviceaccounts" {
					continue // those of controllers, made when they are first used
				}
				all[strings.TrimSuffix(fmt.Sprintf("%s.%s", resource.Name, version.Group), ".")+" "+item.Namespace+"/"+item.Name] = true
			}
		}
	}
	return all
}

// added returns what is in an inventory and was not in an earlier one.
func (i inventory) added(since inventory) []string {
	var lines []string
	for line := range i {
		if !since[line] {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
