// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/follow"
)

var _ follow.Verdict = Verdict

// Verdict ends the wait for an adoption: annexed, or refused, undone or given up.
// A status that does not speak of the present spec yet decides nothing.
func Verdict(group *kubeannexv1alpha1.AnnexedGroup) (bool, error) {
	switch {
	case group == nil:
		return false, errors.New("the adoption was undone: somebody deleted the AnnexedGroup")
	case group.DeletionTimestamp != nil:
		return false, fmt.Errorf("%s is being released (phase %s): somebody deleted the AnnexedGroup", group.Name, group.Status.Phase)
	case group.Status.ObservedGeneration < group.Generation:
		return false, nil
	}
	switch group.Status.Phase {
	case kubeannexv1alpha1.PhaseAnnexed:
		return true, nil
	case kubeannexv1alpha1.PhaseAborted:
		return false, fmt.Errorf("the adoption of %s was aborted%s", group.Name, inBrackets(reasonOf(group)))
	case kubeannexv1alpha1.PhasePreflight:
		passed := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionPreflightPassed)
		if passed != nil && passed.Status == metav1.ConditionFalse && passed.ObservedGeneration >= group.Generation {
			return false, fmt.Errorf("%s cannot be adopted yet: %s (annex tries again until \"kubectl annex release %s\" withdraws it)", group.Name, client.OneLine(passed.Message), group.Name)
		}
	}
	return false, nil
}

// reasonOf is the message of the condition that says why an adoption ended.
func reasonOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	passed := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionPreflightPassed)
	if passed != nil && passed.Status == metav1.ConditionFalse {
		return client.OneLine(passed.Message)
	}
	if held := follow.HeldUp(group); held != "" {
		return held
	}
	if annexed := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionAnnexed); annexed != nil && annexed.Status == metav1.ConditionFalse {
		return client.OneLine(annexed.Message)
	}
	return ""
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// summary is the last line of a successful wait.
func summary(group *kubeannexv1alpha1.AnnexedGroup) string {
	var objects int64
	for _, resource := range group.Status.Resources {
		objects += resource.Objects
	}
	text := fmt.Sprintf("%s is annexed: resources %d, objects %d", group.Name, len(group.Status.Resources), objects)
	if fence := group.Status.FenceDuration; fence != nil {
		text += ", writes held back for " + follow.FormatFence(fence)
	}
	return text
}
