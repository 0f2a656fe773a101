// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

func TestTimelineAddsPhasesUp(t *testing.T) {
	now := time.Unix(0, 0)
	phases := newTimeline()
	phases.now = func() time.Time { return now }
	for _, step := range []struct {
		phase v1alpha1.AnnexedGroupPhase
		after time.Duration
	}{
		{v1alpha1.PhaseCopying, 2 * time.Second}, {v1alpha1.PhaseCopying, time.Second},
		{v1alpha1.PhaseFencing, time.Second}, {v1alpha1.PhaseCopying, 4 * time.Second},
	} {
		phases.Show(&v1alpha1.AnnexedGroup{Status: v1alpha1.AnnexedGroupStatus{Phase: step.phase}})
		now = now.Add(step.after)
	}
	phases.Close()
	if got, want := phases.String(), "Copying 7.0 s, Fencing 1.0 s"; got != want {
		t.Errorf("the timeline is %q, want %q", got, want)
	}
}

func contentsOf(t *testing.T, objects ...string) contents {
	t.Helper()
	var found contents
	for _, object := range objects {
		var item contentsItem
		if err := json.Unmarshal([]byte(object), &item); err != nil {
			t.Fatal(err)
		}
		if err := found.add(item); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestContentsAreCompared(t *testing.T) {
	const (
		first  = `{"metadata":{"namespace":"a","name":"x","uid":"1","resourceVersion":"7"},"spec":{"ip":"10.0.0.1"}}`
		second = `{"metadata":{"namespace":"b","name":"x","uid":"2"},"spec":{"ip":"10.0.0.2"}}`
	)
	before := contentsOf(t, first, second)
	for name, tc := range map[string]struct {
		after   []string
		wantErr string
	}{
		"another order and revision":   {after: []string{second, strings.ReplaceAll(first, `"7"`, `"9"`)}},
		"another form of the same":     {after: []string{strings.ReplaceAll(first, `":"`, `" : "`), second}},
		"another UID":                  {after: []string{strings.ReplaceAll(first, `"1"`, `"3"`), second}, wantErr: "have changed"},
		"UIDs in each other's place":   {after: []string{strings.ReplaceAll(first, `"1"`, `"2"`), strings.ReplaceAll(second, `"2"`, `"1"`)}, wantErr: "have changed"},
		"another spec":                 {after: []string{first, strings.ReplaceAll(second, "10.0.0.2", "10.0.0.3")}, wantErr: "have changed"},
		"one is missing":               {after: []string{first}, wantErr: "there were 2 objects, now there are 1"},
		"one is there instead of both": {after: []string{first, first}, wantErr: "have changed"},
	} {
		t.Run(name, func(t *testing.T) {
			err := before.compare(contentsOf(t, tc.after...))
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("the error is %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestPurgeIsAwaited(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string, generation int64) *v1alpha1.AnnexedGroup {
		group := &v1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		group.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, ObservedGeneration: generation, Message: "why"}}
		return group
	}
	strays, copies := v1alpha1.ConditionStrayWrites, v1alpha1.ConditionHostCopiesPurged
	for name, tc := range map[string]struct {
		verdict           func(*v1alpha1.AnnexedGroup) (bool, error)
		group             *v1alpha1.AnnexedGroup
		wantDone, wantErr bool
	}{
		"nobody has looked at the copies":       {verdict: mayPurge, group: &v1alpha1.AnnexedGroup{}},
		"the copies will be looked at again":    {verdict: mayPurge, group: condition(strays, metav1.ConditionFalse, v1alpha1.ReasonWatching, 1)},
		"the copies are as verified":            {verdict: mayPurge, group: condition(strays, metav1.ConditionFalse, "None", 1), wantDone: true},
		"the copies have changed":               {verdict: mayPurge, group: condition(strays, metav1.ConditionTrue, "Found", 1), wantErr: true},
		"the group is gone before the purge":    {verdict: mayPurge, wantErr: true},
		"the purge has not begun":               {verdict: purged, group: &v1alpha1.AnnexedGroup{}},
		"the purge goes on":                     {verdict: purged, group: condition(copies, metav1.ConditionFalse, v1alpha1.ReasonPurging, 2)},
		"an earlier purge was refused":          {verdict: purged, group: condition(copies, metav1.ConditionFalse, "Changed", 1)},
		"the purge is refused":                  {verdict: purged, group: condition(copies, metav1.ConditionFalse, "Changed", 2), wantErr: true},
		"the purge is done":                     {verdict: purged, group: condition(copies, metav1.ConditionTrue, "Purged", 2), wantDone: true},
		"the group is gone while it was purged": {verdict: purged, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := tc.verdict(tc.group)
			if done != tc.wantDone || (err != nil) != tc.wantErr {
				t.Errorf("done %t, error %v; want %t, an error: %t", done, err, tc.wantDone, tc.wantErr)
			}
		})
	}
}
