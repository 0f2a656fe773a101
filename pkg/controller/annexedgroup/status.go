// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// reportInterval is the least time between two reports of progress within a step.
const reportInterval = time.Second

// errTurnBack ends a step early: the group is being deleted and has not been moved yet.
var errTurnBack = errors.New("the AnnexedGroup is being deleted: the adoption is undone")

// errNotAlone ends a step of a process that is no longer the one that moves the
// group: a leader that was paused, and replaced, for longer than its lease.
var errNotAlone = errors.New("another controller moves the group: see that one leads")

// knownStatuses are the statuses as this process has last read or written them.
type knownStatuses struct {
	mu     sync.Mutex
	byName map[string]kubeannexv1alpha1.AnnexedGroupStatus
}

func (k *knownStatuses) set(group *kubeannexv1alpha1.AnnexedGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byName == nil {
		k.byName = map[string]kubeannexv1alpha1.AnnexedGroupStatus{}
	}
	k.byName[group.Name] = *group.Status.DeepCopy()
}

func (k *knownStatuses) is(group *kubeannexv1alpha1.AnnexedGroup) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return apiequality.Semantic.DeepEqual(k.byName[group.Name], group.Status)
}

func (k *knownStatuses) drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byName, name)
}

// writeStatus stores the status in the middle of a step. It fails when another
// process has written it since.
func (r *Reconciler) writeStatus(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) error {
	groups := r.Connections.Annex.Groups.KubeannexV1alpha1().AnnexedGroups()
	written, err := groups.UpdateStatus(ctx, group, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		var fresh *kubeannexv1alpha1.AnnexedGroup
		if fresh, err = groups.Get(ctx, group.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("reading the AnnexedGroup again: %w", err)
		}
		if fresh.UID != group.UID || group.DeletionTimestamp == nil && fresh.DeletionTimestamp != nil && turnsBack(group.Status.Phase) {
			return errTurnBack
		}
		if !r.known.is(fresh) {
			return fmt.Errorf("writing the status: %w", errNotAlone)
		}
		// Somebody changed the rest.
		fresh.Status = group.Status
		written, err = groups.UpdateStatus(ctx, fresh, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.known.set(written)
	group.ObjectMeta = written.ObjectMeta
	return nil
}

// turnsBack says that an adoption in this phase can be undone without a trace.
func turnsBack(phase kubeannexv1alpha1.AnnexedGroupPhase) bool {
	switch phase {
	case kubeannexv1alpha1.PhasePending, kubeannexv1alpha1.PhasePreflight, kubeannexv1alpha1.PhaseMirroring,
		kubeannexv1alpha1.PhaseCopying, kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing,
		kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseAborted:
		return true
	}
	return false
}

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 4096

// setCondition sets a condition of the present generation. It returns whether that changed anything.
func setCondition(group *kubeannexv1alpha1.AnnexedGroup, kind string, status metav1.ConditionStatus, reason, message string) bool {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + " ..."
	}
	return meta.SetStatusCondition(&group.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: group.Generation,
	})
}

// reasonDone is the reason of a condition Progressing that is false because there is nothing to do.
const reasonDone = "Done"

// setProgressing shows whether the step that has ended goes on.
func (r *Reconciler) setProgressing(group *kubeannexv1alpha1.AnnexedGroup, err error) {
	const kind = kubeannexv1alpha1.ConditionProgressing
	phase := group.Status.Phase
	switch {
	case errors.Is(err, errTurnBack):
	case errors.Is(err, errNewUIDs):
		setCondition(group, kind, metav1.ConditionFalse, kubeannexv1alpha1.ReasonNewUIDsNeeded, oneLine(err))
	case errors.Is(err, errStrayWrites):
		setCondition(group, kind, metav1.ConditionFalse, kubeannexv1alpha1.ReasonStrayWrites, oneLine(err))
	case err != nil:
		setCondition(group, kind, metav1.ConditionFalse, "HeldUp", oneLine(err))
	case phase == kubeannexv1alpha1.PhasePreflight && meta.IsStatusConditionFalse(group.Status.Conditions, kubeannexv1alpha1.ConditionPreflightPassed):
		setCondition(group, kind, metav1.ConditionFalse, "PreflightFailed", "The condition PreflightPassed says what has to be mended first")
	case phase == kubeannexv1alpha1.PhaseAnnexed, phase == kubeannexv1alpha1.PhaseAborted:
		setCondition(group, kind, metav1.ConditionFalse, reasonDone, "Nothing is left to do")
	default:
		setCondition(group, kind, metav1.ConditionTrue, string(phase), "The group is in phase "+string(phase))
	}
}

// oneLine flattens the text of an error.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// resourceStatus returns the entry of a resource, which is made if it is missing.
func resourceStatus(group *kubeannexv1alpha1.AnnexedGroup, plural string) *kubeannexv1alpha1.AnnexedResourceStatus {
	i := slices.IndexFunc(group.Status.Resources, func(s kubeannexv1alpha1.AnnexedResourceStatus) bool { return s.Resource == plural })
	if i < 0 {
		i = len(group.Status.Resources)
		group.Status.Resources = append(group.Status.Resources, kubeannexv1alpha1.AnnexedResourceStatus{Resource: plural})
	}
	return &group.Status.Resources[i]
}

// resetResources makes the status list exactly these resources, in this order.
func resetResources(group *kubeannexv1alpha1.AnnexedGroup, resources []resource) {
	entries := make([]kubeannexv1alpha1.AnnexedResourceStatus, 0, len(resources))
	for _, res := range resources {
		entries = append(entries, *resourceStatus(group, res.plural))
	}
	group.Status.Resources = entries
}

// reporter writes the progress of a long step, at most once in a while.
type reporter struct {
	r     *Reconciler
	group *kubeannexv1alpha1.AnnexedGroup
	last  time.Time
}

func (r *Reconciler) newReporter(group *kubeannexv1alpha1.AnnexedGroup) *reporter {
	return &reporter{r: r, group: group, last: r.Clock.Now()}
}

// report writes the status when it is time. It returns errTurnBack when the step should end.
func (p *reporter) report(ctx context.Context) error {
	if p.r.Clock.Since(p.last) < reportInterval {
		return nil
	}
	p.last = p.r.Clock.Now()
	return p.r.writeStatus(ctx, p.group)
}
