// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features has the feature gates that annex-apiserver has beside those of a
// Kubernetes API server.
package features

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// CompactCache lets the watch caches of custom resources keep their JSON instead of decoded objects.
const CompactCache featuregate.Feature = "CompactCache"

func init() { //nolint:gochecknoinits // feature gates are those of the process; upstream registers its own so
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.AddVersioned(Gates()))
}

// Gates are the gates with their defaults, by the Kubernetes version that is emulated.
func Gates() map[featuregate.Feature]featuregate.VersionedSpecs {
	return map[featuregate.Feature]featuregate.VersionedSpecs{
		CompactCache: {{Version: utilversion.MustParse("1.0"), Default: true, PreRelease: featuregate.Beta}},
	}
}
