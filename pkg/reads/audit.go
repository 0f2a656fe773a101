// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"strconv"

	"k8s.io/apiserver/pkg/audit"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// The annotations of audit events. A read that came to nothing has none of them, a
// watch has no numbers, and where no index was read there is none.
const (
	// AnnotationSource is what was read: Cache or Etcd.
	AnnotationSource = "kubeannex.io/source"
	// AnnotationRule is the rule by which that was chosen.
	AnnotationRule = "kubeannex.io/rule"
	// AnnotationIndex is the index that was read, or by which a watch is dispatched.
	AnnotationIndex = "kubeannex.io/index"
	// AnnotationScanned is how many objects were compared with selectors or returned.
	AnnotationScanned = "kubeannex.io/scanned"
	// AnnotationReturned is how many objects the answer has.
	AnnotationReturned = "kubeannex.io/returned"
)

// annotate adds the annotations to the audit event of the request, if it has one.
// It must be called before the handler returns, for a watch before its header is
// written (k8s.io/apiserver pkg/endpoints/filters/audit.go).
func annotate(ctx context.Context, verb string, reading annexed.Reading) {
	if !audit.AuditContextFrom(ctx).Enabled() {
		return
	}
	annotations := []string{AnnotationSource, string(SourceOf(reading.Source)), AnnotationRule, string(reading.Rule)}
	if reading.Index != "" {
		annotations = append(annotations, AnnotationIndex, reading.Index)
	}
	if verb != verbWatch {
		annotations = append(annotations,
			AnnotationScanned, strconv.FormatInt(reading.Scanned, 10),
			AnnotationReturned, strconv.FormatInt(reading.Returned, 10))
	}
	audit.AddAuditAnnotations(ctx, annotations...)
}
