// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

func addDefaultingFuncs(scheme *runtime.Scheme) error {
	return RegisterDefaults(scheme)
}

// SetDefaults_AnnexedGroupStatus makes an absent phase mean Pending, so that a
// stored object always matches one value of the field selector status.phase.
// The server applies it when it decodes; clients never see an empty phase and
// never have to fill it in. Namespaces and claims are defaulted the same way
// (SetDefaults_NamespaceStatus in k8s.io/kubernetes/pkg/apis/core/v1/defaults.go).
func SetDefaults_AnnexedGroupStatus(status *AnnexedGroupStatus) {
	if status.Phase == "" {
		status.Phase = PhasePending
	}
}
