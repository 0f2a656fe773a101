// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Reasons with which the condition Progressing is false although nothing holds a
// step up: there is nothing to do, or another condition says what is wrong.
const (
	reasonDone            = "Done"
	reasonPreflightFailed = "PreflightFailed"
)

// Done is the number of objects of a resource that the present phase is through
// with, at most all of them.
func Done(phase kubeannexv1alpha1.AnnexedGroupPhase, resource *kubeannexv1alpha1.AnnexedResourceStatus) int64 {
	switch phase {
	case kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseReleaseVerifying:
		return min(resource.Verified, resource.Objects)
	case kubeannexv1alpha1.PhaseCuttingOver, kubeannexv1alpha1.PhaseUnfencing, kubeannexv1alpha1.PhaseAnnexed,
		kubeannexv1alpha1.PhaseReleaseCuttingOver, kubeannexv1alpha1.PhaseReleaseUnfencing:
		return resource.Objects
	default:
		return min(resource.Copied, resource.Objects)
	}
}

// Percent is done of total, 100 only when nothing is missing.
func Percent(done, total int64) int64 {
	if done >= total {
		return 100
	}
	return min(int64(float64(done)/float64(total)*100), 99)
}

// Counting reports whether the phase goes through the objects one by one.
func Counting(phase kubeannexv1alpha1.AnnexedGroupPhase) bool {
	switch phase {
	case kubeannexv1alpha1.PhaseCopying, kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing, kubeannexv1alpha1.PhaseVerifying,
		kubeannexv1alpha1.PhaseReleasing, kubeannexv1alpha1.PhaseReleaseFencing, kubeannexv1alpha1.PhaseReleaseVerifying:
		return true
	}
	return false
}

// HeldUp is what keeps the present phase from going on, "" if nothing does.
func HeldUp(group *kubeannexv1alpha1.AnnexedGroup) string {
	condition := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionProgressing)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason == reasonDone || condition.Reason == reasonPreflightFailed {
		return ""
	}
	return strings.Join(strings.Fields(condition.Message), " ")
}

// Waiting is what annex waits for although nothing is wrong, "" if it does not wait.
func Waiting(group *kubeannexv1alpha1.AnnexedGroup) string {
	strays := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	if strays == nil || strays.Reason != kubeannexv1alpha1.ReasonWatching {
		return ""
	}
	if group.Status.Phase != kubeannexv1alpha1.PhaseReleasing && group.Spec.HostCopies != kubeannexv1alpha1.HostCopiesPurge {
		return ""
	}
	return "waiting until a minute after the adoption, when no write of before it can be late any more"
}

// phaseLine names the phase, what it is through with if counts is not empty, and
// what holds it up.
func phaseLine(group *kubeannexv1alpha1.AnnexedGroup, counts string) string {
	line := string(group.Status.Phase)
	if line == "" {
		line = string(kubeannexv1alpha1.PhasePending)
	}
	if counts != "" {
		line += ": " + counts
	}
	purged := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged)
	if purged != nil && purged.Status == metav1.ConditionFalse && purged.Reason == kubeannexv1alpha1.ReasonPurging {
		line += fmt.Sprintf(" (%s)", strings.Join(strings.Fields(purged.Message), " "))
	}
	if waiting := Waiting(group); waiting != "" {
		line += fmt.Sprintf(" (%s)", waiting)
	}
	if held := HeldUp(group); held != "" {
		line += fmt.Sprintf(" (held up: %s)", held)
	}
	return line
}

// sums are done and total objects of all resources.
func sums(group *kubeannexv1alpha1.AnnexedGroup) (done, total int64) {
	for i := range group.Status.Resources {
		done += Done(group.Status.Phase, &group.Status.Resources[i])
		total += group.Status.Resources[i].Objects
	}
	return done, total
}

// FormatFence writes how long writes were held back, to the millisecond.
func FormatFence(fence *metav1.Duration) string {
	return fence.Round(time.Millisecond).String()
}

// BeforeCutOver reports whether the cluster still serves the group, so that a
// release only undoes the adoption.
func BeforeCutOver(phase kubeannexv1alpha1.AnnexedGroupPhase) bool {
	switch phase {
	case "", kubeannexv1alpha1.PhasePending, kubeannexv1alpha1.PhasePreflight, kubeannexv1alpha1.PhaseMirroring,
		kubeannexv1alpha1.PhaseCopying, kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing,
		kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseAborting, kubeannexv1alpha1.PhaseAborted:
		return true
	}
	return false
}
