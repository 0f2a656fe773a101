// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

const (
	// firstPageObjects is the size of the first page of a list of whole objects.
	// The following ones follow from what it weighed.
	firstPageObjects = 100
	maxPageObjects   = 1000
	pageBytes        = 4 << 20
	// metadataPageObjects bounds the memory of a list of metadata.
	metadataPageObjects = 10000
)

// page is a part of a list of whole objects.
type page struct {
	items []unstructured.Unstructured
	// total is the number of objects of the list as far as the server tells.
	total int64
}

// eachPage lists a resource at a server and hands over page by page. When the
// revision of the list has been compacted it goes on at the present one: what
// changed in between is for later rounds.
func eachPage(ctx context.Context, server *cluster.Server, gvr schema.GroupVersionResource, take func(context.Context, page) error) error {
	options := metav1.ListOptions{Limit: firstPageObjects}
	var before int64
	for {
		list, err := server.Dynamic.Resource(gvr).List(ctx, options)
		if token := freshToken(err); token != "" && token != options.Continue {
			options.Continue = token
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s of %s: %w", gvr.GroupResource(), server.Name, err)
		}
		before += int64(len(list.Items))
		total := before
		if remaining := list.GetRemainingItemCount(); remaining != nil {
			total += *remaining
		}
		if err := take(ctx, page{items: list.Items, total: total}); err != nil {
			return err
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
		options.Limit = nextLimit(list)
	}
}

// freshToken is the token with which a list goes on whose revision is compacted.
func freshToken(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// nextLimit keeps pages of objects of any size at about the same weight.
func nextLimit(list *unstructured.UnstructuredList) int64 {
	sample := list.Items[:min(len(list.Items), 10)]
	weight := 0
	for i := range sample {
		if content, err := sample[i].MarshalJSON(); err == nil {
			weight += len(content)
		}
	}
	if weight == 0 {
		return maxPageObjects
	}
	return int64(min(max(pageBytes*len(sample)/weight, 1), maxPageObjects))
}

// eachMetadata lists the metadata of a resource at one revision and hands them
// over page by page.
func eachMetadata(ctx context.Context, server *cluster.Server, gvr schema.GroupVersionResource, take func([]metav1.PartialObjectMetadata)) error {
	options := metav1.ListOptions{Limit: metadataPageObjects}
	for {
		list, err := server.Metadata.Resource(gvr).List(ctx, options)
		if err != nil {
			return fmt.Errorf("listing the metadata of %s of %s: %w", gvr.GroupResource(), server.Name, err)
		}
		take(list.Items)
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}
