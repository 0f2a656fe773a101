// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// TestAdmissionComplete has a cluster lose an API on which a plug-in depends, and get it back.
func TestAdmissionComplete(t *testing.T) {
	l := startLab(t, setup{status: annexedStatus(time.Now(), metav1.ConditionFalse), services: routes()})
	for _, step := range []struct {
		disabled    []string
		want        string
		wantMessage string
	}{
		{want: "True AllPlugins", wantMessage: "Annex admits writes by everything that the cluster has"},
		{
			disabled: []string{"PriorityAndFairness", "MutatingAdmissionPolicy"}, want: "False PluginsDisabled",
			wantMessage: "MutatingAdmissionPolicy, PriorityAndFairness: off in annex, because the cluster does not serve the API; it is switched on when the cluster does",
		},
		{want: "True AllPlugins", wantMessage: "Annex admits writes by everything that the cluster has"},
	} {
		l.annex.mu.Lock()
		l.annex.disabled = step.disabled
		l.annex.mu.Unlock()
		group, _, err := l.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, condition(group, kubeannexv1alpha1.ConditionAdmissionComplete)); diff != "" {
			t.Errorf("with %v switched off (-want +got):\n%s", step.disabled, diff)
		}
		shown := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionAdmissionComplete)
		if diff := cmp.Diff(step.wantMessage, shown.Message); diff != "" {
			t.Errorf("message with %v switched off (-want +got):\n%s", step.disabled, diff)
		}
	}
}
