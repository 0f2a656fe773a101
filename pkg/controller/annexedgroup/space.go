// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const (
	// lowPercent is how full of its quota etcd may get before somebody has to see to it.
	lowPercent = 80
	// largestRequest is what etcd takes in one write unless it was told otherwise, in bytes. With less
	// room it refuses writes, and with the first that it refuses it raises its alarm.
	largestRequest = 3 << 19

	makeRoom = "raise its quota (etcd.quotaBytes of the chart, --embedded-etcd-quota-bytes, or --quota-backend-bytes of an etcd of your own), " +
		"or delete objects or release the group, and defragment etcd"
)

// showSpace sets the condition that says whether the etcd of the group has room, by the replica that sees the
// fullest one. The message changes with whole percents only: clients write often, and the status is not to be written as often.
func showSpace(group *kubeannexv1alpha1.AnnexedGroup, replicas []replicaStatus) {
	known := slices.DeleteFunc(slices.Clone(replicas), func(r replicaStatus) bool { return r.DatabaseBytes <= 0 || r.QuotaBytes <= 0 })
	if len(known) == 0 {
		setCondition(group, kubeannexv1alpha1.ConditionStorageSpace, metav1.ConditionUnknown, "NotReported",
			"No replica of annex knows the size of its etcd and its quota: see that etcd answers and is of version 3.6 or later")
		return
	}
	fullest := slices.MinFunc(known, func(a, b replicaStatus) int {
		return cmp.Or(cmp.Compare(percentFull(b), percentFull(a)), cmp.Compare(a.name, b.name))
	})
	status, reason := metav1.ConditionTrue, "Enough"
	message := fmt.Sprintf("No replica of annex sees more than %d %% of the quota of its etcd in use", lowPercent)
	switch percent := percentFull(fullest); {
	case fullest.QuotaBytes-fullest.DatabaseBytes < largestRequest:
		status, reason = metav1.ConditionFalse, "Exhausted"
		message = fmt.Sprintf("Etcd has no room left at replica %s, %d %% of its quota of %d MiB are in use and writes fail or soon will: %s; then see that its alarm is disarmed",
			fullest.name, percent, fullest.QuotaBytes>>20, makeRoom)
	case percent > lowPercent:
		status, reason = metav1.ConditionFalse, "Low"
		message = fmt.Sprintf("Etcd is %d %% full at replica %s, of a quota of %d MiB, and refuses writes when it is full: %s",
			percent, fullest.name, fullest.QuotaBytes>>20, makeRoom)
	}
	setCondition(group, kubeannexv1alpha1.ConditionStorageSpace, status, reason, message)
}

// percentFull is rounded up.
func percentFull(replica replicaStatus) int64 {
	return (replica.DatabaseBytes*100 + replica.QuotaBytes - 1) / replica.QuotaBytes
}
