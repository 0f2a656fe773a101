// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// showAdmission sets the condition that says whether annex admits writes as the cluster is able to.
func showAdmission(group *kubeannexv1alpha1.AnnexedGroup, replicas []replicaStatus) {
	disabled := sets.New[string]()
	for _, replica := range replicas {
		disabled.Insert(replica.DisabledPlugins...)
	}
	status, reason, message := metav1.ConditionTrue, "AllPlugins", "Annex admits writes by everything that the cluster has"
	if disabled.Len() > 0 {
		status, reason = metav1.ConditionFalse, "PluginsDisabled"
		message = fmt.Sprintf("%s: off in annex, because the cluster does not serve the API; it is switched on when the cluster does",
			strings.Join(sets.List(disabled), ", "))
	}
	setCondition(group, kubeannexv1alpha1.ConditionAdmissionComplete, status, reason, message)
}
