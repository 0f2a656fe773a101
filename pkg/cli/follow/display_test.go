// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vbauerster/mpb/v8"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

func copying(copied, objects int64) *kubeannexv1alpha1.AnnexedGroup {
	return &kubeannexv1alpha1.AnnexedGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "example.com"},
		Status: kubeannexv1alpha1.AnnexedGroupStatus{
			Phase: kubeannexv1alpha1.PhaseCopying,
			Resources: []kubeannexv1alpha1.AnnexedResourceStatus{
				{Resource: "racks"}, {Resource: "widgets", Objects: objects, Copied: copied},
			},
		},
	}
}

func heldUp(group *kubeannexv1alpha1.AnnexedGroup) *kubeannexv1alpha1.AnnexedGroup {
	group.Status.Conditions = []metav1.Condition{{
		Type: kubeannexv1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: "HeldUp",
		Message: "kube-apiserver https://10.0.0.1:6443 does not answer",
	}}
	return group
}

func TestBarsLeaveTheLastStateOnTheScreen(t *testing.T) {
	for name, test := range map[string]struct {
		states []*kubeannexv1alpha1.AnnexedGroup
		want   string
	}{
		"nothing was shown": {},
		"a copy that ends early": {
			states: []*kubeannexv1alpha1.AnnexedGroup{copying(0, 10), copying(5, 10)},
			want: `Copying
racks    [==============================================>]   0/0
widgets  [=======================>-----------------------]  5/10
`,
		},
		"a phase that is held up for a long reason": {
			states: []*kubeannexv1alpha1.AnnexedGroup{heldUp(copying(5, 10))},
			want: `Copying (held up: kube-apiserver https://10.0.0.1:6443 does not…
racks    [==============================================>]   0/0
widgets  [=======================>-----------------------]  5/10
`,
		},
		"a source that grows, and a copy that begins anew": {
			states: []*kubeannexv1alpha1.AnnexedGroup{copying(10, 10), copying(10, 20), copying(1, 20)},
			want: `Copying
racks    [==============================================>]   0/0
widgets  [=>---------------------------------------------]  1/20
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			b := newBars(&out, mpb.WithWidth(64), mpb.WithAutoRefresh())
			for _, state := range test.states {
				b.Show(state)
			}
			b.Close()
			got := out.String()
			// On what is no terminal one picture follows the other.
			lines := strings.SplitAfter(got, "\n")
			got = strings.Join(lines[max(len(lines)-4, 0):], "")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the screen differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPercentIsHundredOnlyWhenNothingIsMissing(t *testing.T) {
	for _, test := range []struct{ done, total, want int64 }{
		{0, 0, 100}, {0, 1, 0}, {1, 2, 50}, {999, 1000, 99}, {1<<62 - 1, 1 << 62, 99}, {3, 2, 100},
	} {
		if got := Percent(test.done, test.total); got != test.want {
			t.Errorf("Percent(%d, %d) = %d, want %d", test.done, test.total, got, test.want)
		}
	}
}
