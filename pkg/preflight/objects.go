// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeannex/annex/pkg/gone"
)

func (c *collector) lookAtObjects(ctx context.Context) error {
	for i := range c.report.Resources {
		resource := &c.report.Resources[i]
		if version := resource.StorageVersion; slices.Contains(resource.ServedVersions, version) && c.local(version) {
			if err := c.sample(ctx, resource, version); err != nil {
				return err
			}
		}
	}
	c.sumUp()
	return nil
}

// sample reads one page of a resource and reckons from it. How many objects
// follow is what the server says of the rest.
func (c *collector) sample(ctx context.Context, resource *Resource, version string) error {
	gvr := schema.GroupVersionResource{Group: c.group, Version: version, Resource: resource.Name}
	list, err := c.clients.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: c.options.SampleSize})
	if err != nil {
		return c.unlistable(resource, version, CheckObjects, err)
	}
	resource.Counted = true
	resource.Sampled = int64(len(list.Items))
	resource.Objects = resource.Sampled
	finalizers := sets.New[string]()
	var bytes int64
	for i := range list.Items {
		size, err := sizeOf(&list.Items[i])
		if err != nil {
			return err
		}
		bytes += size
		finalizers.Insert(list.Items[i].GetFinalizers()...)
		if list.Items[i].GetDeletionTimestamp() != nil {
			resource.InDeletion++
		}
		c.countOwners(resource, list.Items[i].GetOwnerReferences())
	}
	resource.Finalizers = sets.List(finalizers)
	switch rest := list.GetRemainingItemCount(); {
	case rest != nil:
		resource.Objects += *rest
	case list.GetContinue() != "":
		resource.Counted = false
		c.addf(SeverityInfo, CheckObjects, "%s: the server does not say how many objects there are beyond the first %d", resource.Name, resource.Sampled)
	}
	if resource.Sampled > 0 {
		resource.EstimatedBytes = int64(float64(bytes) / float64(resource.Sampled) * float64(resource.Objects))
	}
	return nil
}

func sizeOf(object *unstructured.Unstructured) (int64, error) {
	encoded, err := json.Marshal(object.Object)
	if err != nil {
		return 0, fmt.Errorf("measuring %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return int64(len(encoded)), nil
}

// unlistable tells apart what the caller may not do, what is wrong with the
// resource, and a server that did not answer, which alone is an error.
func (c *collector) unlistable(resource *Resource, version, check string, err error) error {
	switch status, ok := errors.AsType[*apierrors.StatusError](err); {
	case apierrors.IsForbidden(err):
		c.addf(SeverityWarning, check, "%s could not be read and are not counted: %s", resource.Name, reason(err))
	case ok && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsUnauthorized(err):
		c.addf(SeverityRefusal, check, "%s cannot be listed in version %s, which the copy has to do (%s): mend this first", resource.Name, version, status.ErrStatus.Message)
	default:
		return fmt.Errorf("listing %s in version %s: %w", resource.Name, version, err)
	}
	return nil
}

// sumUp tells what all resources together need and what waits in them.
func (c *collector) sumUp() {
	var objects, bytes int64
	for i := range c.report.Resources {
		resource := &c.report.Resources[i]
		objects += resource.Objects
		bytes += resource.EstimatedBytes
		if resource.InDeletion > 0 {
			c.addf(SeverityInfo, CheckObjects, "%s: %d of %d objects looked at are being deleted and wait for finalizers; they move as they are", resource.Name, resource.InDeletion, resource.Sampled)
		}
		if len(resource.Finalizers) > 0 {
			c.addf(SeverityInfo, CheckObjects, "%s: objects have finalizers (%s); their controllers must reach the group after the move as before", resource.Name, strings.Join(resource.Finalizers, ", "))
		}
	}
	c.addf(SeverityInfo, CheckObjects, "%d objects of about %s move; annex's etcd needs 1.3 times that free below its quota", objects, FormatBytes(bytes))
}

// FormatBytes writes a size as people read it, such as "12.3 MiB".
func FormatBytes(bytes int64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/1024, 0
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// lookAtConversions reads one object in every version that a webhook converts to.
func (c *collector) lookAtConversions(ctx context.Context) error {
	for i := range c.report.Resources {
		resource := &c.report.Resources[i]
		conversion := c.definitions[i].Spec.Conversion
		if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
			continue
		}
		config := conversion.Webhook.ClientConfig
		target := "a URL"
		if config.Service != nil {
			target = "service " + config.Service.Namespace + "/" + config.Service.Name
		} else if config.URL != nil {
			target = *config.URL
		}
		c.addf(SeverityInfo, CheckConversion, "%s: a webhook converts between versions; annex calls it too, so %s must be reachable from annex", resource.Name, target)
		for _, version := range resource.ServedVersions {
			if version == resource.StorageVersion || !c.local(version) {
				continue
			}
			if err := c.convertOne(ctx, resource, version); err != nil {
				if err := c.unlistable(resource, version, CheckConversion, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// convertOne makes the server convert an object now. A list may come from a cache
// that was filled when the webhook still answered; a GET of no particular
// revision is read from etcd (k8s.io/apiserver pkg/storage/cacher/delegator.go).
func (c *collector) convertOne(ctx context.Context, resource *Resource, version string) error {
	objects := c.clients.Dynamic.Resource(schema.GroupVersionResource{Group: c.group, Version: version, Resource: resource.Name})
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	first := &list.Items[0]
	_, err = objects.Namespace(first.GetNamespace()).Get(ctx, first.GetName(), metav1.GetOptions{})
	if gone.Object(err, first.GetName()) {
		return nil // deleted since the list
	}
	return err
}
