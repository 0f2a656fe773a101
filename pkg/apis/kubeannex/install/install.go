// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install registers every version of the kubeannex.io API in a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Install registers the internal and the served types with their conversions,
// defaults, field selectors and version priority. It panics only when two types
// claim one kind, which every test of the scheme would hit.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(kubeannex.AddToScheme(scheme))
	utilruntime.Must(kubeannexv1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(kubeannexv1alpha1.SchemeGroupVersion))
}
