// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/follow"
	"github.com/kubeannex/annex/pkg/cli/output"
	"github.com/kubeannex/annex/pkg/preflight"
)

const none = "<none>"

// row is one line of the list of all groups.
func (o *Options) row(group *kubeannexv1alpha1.AnnexedGroup) []string {
	status := &group.Status
	var done, total int64
	for i := range status.Resources {
		done += follow.Done(status.Phase, &status.Resources[i])
		total += status.Resources[i].Objects
	}
	progress := none
	if follow.Counting(status.Phase) && total > 0 {
		progress = fmt.Sprintf("%d%%", follow.Percent(done, total))
	}
	return []string{
		group.Name, phaseOf(group), strconv.Itoa(len(status.Resources)), strconv.FormatInt(total, 10), progress, noteOf(group), o.age(group),
	}
}

// noteOf names the condition that a person should read, if there is one.
func noteOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	conditions := group.Status.Conditions
	switch {
	case meta.IsStatusConditionFalse(conditions, kubeannexv1alpha1.ConditionPreflightPassed):
		return "preflight failed"
	case follow.HeldUp(group) != "":
		return "held up"
	case meta.IsStatusConditionTrue(conditions, kubeannexv1alpha1.ConditionStrayWrites):
		return "stray writes"
	case meta.IsStatusConditionFalse(conditions, kubeannexv1alpha1.ConditionMirrored) && group.Status.Phase == kubeannexv1alpha1.PhaseAnnexed:
		return "not mirrored"
	case meta.IsStatusConditionFalse(conditions, kubeannexv1alpha1.ConditionStorageSpace):
		return "little room in etcd"
	case meta.IsStatusConditionFalse(conditions, kubeannexv1alpha1.ConditionAdmissionComplete):
		return "plug-ins disabled"
	}
	return none
}

func phaseOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	if group.Status.Phase == "" {
		return string(kubeannexv1alpha1.PhasePending)
	}
	return string(group.Status.Phase)
}

func (o *Options) age(group *kubeannexv1alpha1.AnnexedGroup) string {
	if group.CreationTimestamp.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(o.Clock.Since(group.CreationTimestamp.Time))
}

// describe prints one group for people.
func (o *Options) describe(group *kubeannexv1alpha1.AnnexedGroup) error {
	heading := [][]string{
		{"Group:", group.Name},
		{"Phase:", phaseOf(group)},
		{"Serving:", servingOf(group)},
		{"Host copies:", hostCopiesOf(group)},
		{"Writes held back:", fenceOf(group)},
		{"Age:", o.age(group)},
	}
	if err := output.Table(o.Out, heading[0], heading[1:]); err != nil {
		return err
	}
	fmt.Fprintln(o.Out)
	if err := output.Table(o.Out, []string{"PHASE", "STATE"}, phaseRows(group)); err != nil {
		return err
	}
	if rows := resourceRows(group); len(rows) > 0 {
		fmt.Fprintln(o.Out)
		if err := output.Table(o.Out, []string{"RESOURCE", "OBJECTS", "SIZE", "COPIED", "VERIFIED", "INDEXED LABELS"}, rows); err != nil {
			return err
		}
	}
	if rows := conditionRows(group); len(rows) > 0 {
		fmt.Fprintln(o.Out)
		return output.Table(o.Out, []string{"CONDITION", "STATUS", "REASON", "MESSAGE"}, rows)
	}
	return nil
}

func servingOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	switch group.Status.Serving {
	case kubeannexv1alpha1.ServingOpen:
		return "by annex"
	case kubeannexv1alpha1.ServingReadOnly:
		return "by annex, writes wait"
	case kubeannexv1alpha1.ServingReleased:
		return "clients are sent back to the cluster"
	}
	return "by the cluster"
}

func hostCopiesOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	switch {
	case meta.IsStatusConditionTrue(group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged):
		return "purged"
	case group.Spec.HostCopies == kubeannexv1alpha1.HostCopiesPurge:
		if waiting := follow.Waiting(group); waiting != "" {
			return "to be purged, " + waiting
		}
		return "to be purged"
	}
	return "retained"
}

func fenceOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	if group.Status.FenceDuration == nil {
		return none
	}
	return follow.FormatFence(group.Status.FenceDuration)
}

// phaseRows says of every phase of the way that the group is on whether it is done.
func phaseRows(group *kubeannexv1alpha1.AnnexedGroup) [][]string {
	var rows [][]string
	for _, way := range ways() {
		now := slices.Index(way, kubeannexv1alpha1.AnnexedGroupPhase(phaseOf(group)))
		if now < 0 {
			continue
		}
		for i, phase := range way {
			state := "pending"
			switch {
			case i < now, i == now && i == len(way)-1:
				state = "done"
			case i == now:
				state = "now" + nowOf(group)
			}
			rows = append(rows, []string{string(phase), state})
		}
		return rows
	}
	return [][]string{{phaseOf(group), "now"}}
}

// nowOf adds the progress or what holds it up.
func nowOf(group *kubeannexv1alpha1.AnnexedGroup) string {
	if held := follow.HeldUp(group); held != "" {
		return ", held up: " + held
	}
	if waiting := follow.Waiting(group); waiting != "" {
		return ", " + waiting
	}
	if phaseOf(group) == string(kubeannexv1alpha1.PhasePending) {
		return ", annex-controller has not looked at it"
	}
	if !follow.Counting(group.Status.Phase) {
		return ""
	}
	var done, total int64
	for i := range group.Status.Resources {
		done += follow.Done(group.Status.Phase, &group.Status.Resources[i])
		total += group.Status.Resources[i].Objects
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf(", %d%%", follow.Percent(done, total))
}

// ways are the orders of phases: into annex, undone, and out of it. The last one
// of each is an end, except that of a release, after which the object is gone.
func ways() [][]kubeannexv1alpha1.AnnexedGroupPhase {
	return [][]kubeannexv1alpha1.AnnexedGroupPhase{
		{
			kubeannexv1alpha1.PhasePending, kubeannexv1alpha1.PhasePreflight, kubeannexv1alpha1.PhaseMirroring,
			kubeannexv1alpha1.PhaseCopying, kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing,
			kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseCuttingOver, kubeannexv1alpha1.PhaseUnfencing,
			kubeannexv1alpha1.PhaseAnnexed,
		},
		{kubeannexv1alpha1.PhaseAborting, kubeannexv1alpha1.PhaseAborted},
		{
			kubeannexv1alpha1.PhaseReleasing, kubeannexv1alpha1.PhaseReleaseFencing, kubeannexv1alpha1.PhaseReleaseVerifying,
			kubeannexv1alpha1.PhaseReleaseCuttingOver, kubeannexv1alpha1.PhaseReleaseUnfencing, "Released",
		},
	}
}

func resourceRows(group *kubeannexv1alpha1.AnnexedGroup) [][]string {
	indexed := map[string]string{}
	for _, resource := range group.Spec.Resources {
		indexed[resource.Resource] = strings.Join(resource.IndexLabels, ",")
	}
	var rows [][]string
	for _, r := range group.Status.Resources {
		labels := indexed[r.Resource]
		if labels == "" {
			labels = none
		}
		rows = append(rows, []string{
			r.Resource, strconv.FormatInt(r.Objects, 10), preflight.FormatBytes(r.Bytes),
			strconv.FormatInt(r.Copied, 10), strconv.FormatInt(r.Verified, 10), labels,
		})
	}
	return rows
}

func conditionRows(group *kubeannexv1alpha1.AnnexedGroup) [][]string {
	conditions := slices.SortedFunc(slices.Values(group.Status.Conditions), func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	var rows [][]string
	for _, c := range conditions {
		rows = append(rows, []string{c.Type, string(c.Status), c.Reason, strings.Join(strings.Fields(c.Message), " ")})
	}
	return rows
}
