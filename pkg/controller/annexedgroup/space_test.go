// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// sees is the answer of a replica whose etcd has that much of its quota in use.
func sees(name string, databaseMiB, quotaMiB int64) replicaStatus {
	return replicaStatus{name: name, ReplicaStatus: kubeannexv1alpha1.ReplicaStatus{DatabaseBytes: databaseMiB << 20, QuotaBytes: quotaMiB << 20}}
}

func TestShowSpace(t *testing.T) {
	const enough = "No replica of annex sees more than 80 % of the quota of its etcd in use"
	low := func(percent int, name string) string {
		return fmt.Sprintf("Etcd is %d %% full at replica %s, of a quota of 1000 MiB, and refuses writes when it is full: %s", percent, name, makeRoom)
	}
	slightlyMore := sees("a", 800, 1000)
	slightlyMore.DatabaseBytes++
	hardlyRoom, noRoom := sees("a", 1000, 1000), sees("a", 1000, 1000)
	hardlyRoom.DatabaseBytes -= largestRequest
	noRoom.DatabaseBytes -= largestRequest - 1
	cases := map[string]struct {
		replicas    []replicaStatus
		want        string
		wantMessage string
	}{
		"no replica": {
			want: "Unknown NotReported", wantMessage: "No replica of annex knows the size of its etcd and its quota: see that etcd answers and is of version 3.6 or later",
		},
		"an etcd that does not answer":                {replicas: []replicaStatus{sees("a", 0, 0)}, want: "Unknown NotReported"},
		"an etcd that does not tell its quota":        {replicas: []replicaStatus{sees("a", 900, 0)}, want: "Unknown NotReported"},
		"an empty etcd":                               {replicas: []replicaStatus{sees("a", 1, 1000)}, want: "True Enough", wantMessage: enough},
		"at the threshold":                            {replicas: []replicaStatus{sees("a", 800, 1000)}, want: "True Enough", wantMessage: enough},
		"a byte above the threshold":                  {replicas: []replicaStatus{slightlyMore}, want: "False Low", wantMessage: low(81, "a")},
		"room for one more of the largest requests":   {replicas: []replicaStatus{hardlyRoom}, want: "False Low", wantMessage: low(100, "a")},
		"no room for the largest request":             {replicas: []replicaStatus{noRoom}, want: "False Exhausted"},
		"an etcd that is full":                        {replicas: []replicaStatus{sees("a", 1000, 1000)}, want: "False Exhausted"},
		"a quota that was lowered below what is used": {replicas: []replicaStatus{sees("a", 2000, 1000)}, want: "False Exhausted"},
		"one of several does not know":                {replicas: []replicaStatus{sees("a", 0, 0), sees("b", 100, 1000)}, want: "True Enough", wantMessage: enough},
		"the fullest of several": {
			replicas: []replicaStatus{sees("a", 100, 1000), sees("b", 900, 1000), sees("c", 850, 1000)}, want: "False Low", wantMessage: low(90, "b"),
		},
		"the first of several that see the same": {
			replicas: []replicaStatus{sees("b", 900, 1000), sees("a", 900, 1000)}, want: "False Low", wantMessage: low(90, "a"),
		},
		"a full one beside one with another quota": {
			replicas: []replicaStatus{sees("a", 8000, 9000), sees("b", 2, 2)}, want: "False Exhausted",
			wantMessage: "Etcd has no room left at replica b, 100 % of its quota of 2 MiB are in use and writes fail or soon will: " + makeRoom + "; then see that its alarm is disarmed",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group, before := &kubeannexv1alpha1.AnnexedGroup{}, slices.Clone(tc.replicas)
			showSpace(group, tc.replicas)
			if diff := cmp.Diff(tc.want, condition(group, kubeannexv1alpha1.ConditionStorageSpace)); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			message := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStorageSpace).Message
			if diff := cmp.Diff(tc.wantMessage, message); tc.wantMessage != "" && diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if strings.Contains(message, "\n") {
				t.Errorf("the message is not one line: %q", message)
			}
			if diff := cmp.Diff(before, tc.replicas, cmp.AllowUnexported(replicaStatus{})); diff != "" {
				t.Errorf("the answers of the replicas were changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestStorageSpaceFollows lets the etcd of an annexed group fill up, grow within one percent, and be defragmented.
func TestStorageSpaceFollows(t *testing.T) {
	l := startLab(t, setup{status: annexedStatus(time.Now(), metav1.ConditionFalse), services: routes()})
	for _, step := range []struct {
		name       string
		size       int64
		want       string
		wantWrites int
	}{
		{"not known at first", 0, "Unknown NotReported", 1},
		{"room", 100 << 20, "True Enough", 1},
		{"more objects", 200 << 20, "True Enough", 0},
		{"little room", 900<<20 - 1<<10, "False Low", 1},
		{"a few objects more", 900 << 20, "False Low", 0},
		{"no room", 1000 << 20, "False Exhausted", 1},
		{"defragmented", 300 << 20, "True Enough", 1},
	} {
		l.annex.mu.Lock()
		l.annex.databaseBytes, l.annex.quotaBytes = step.size, 1000<<20
		written := len(l.annex.stored)
		l.annex.mu.Unlock()
		group, _, err := l.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, condition(group, kubeannexv1alpha1.ConditionStorageSpace)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		l.annex.mu.Lock()
		if writes := len(l.annex.stored) - written; writes != step.wantWrites {
			t.Errorf("%s: the status was written %d times, want %d", step.name, writes, step.wantWrites)
		}
		l.annex.mu.Unlock()
	}
}
