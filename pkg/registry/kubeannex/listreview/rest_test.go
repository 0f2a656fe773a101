// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listreview

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// fakeExplainer answers with the path of what it was asked, or with an error.
type fakeExplainer struct {
	err   error
	asked int
}

func (f *fakeExplainer) Explain(_ context.Context, spec *kubeannex.ListReviewSpec) (*kubeannex.ListReviewStatus, error) {
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	return &kubeannex.ListReviewStatus{Path: spec.Path}, nil
}

func TestCreate(t *testing.T) {
	refused := errors.New("refused")
	expired := apierrors.NewResourceExpired("too old")
	review := &kubeannex.ListReview{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec:       kubeannex.ListReviewSpec{Path: "/api/v1/pods"},
		Status:     kubeannex.ListReviewStatus{Rule: "made up"},
	}
	for name, tc := range map[string]struct {
		object    runtime.Object
		validate  error
		err       error
		want      kubeannex.ListReviewStatus
		wantErr   error
		wantAsked int
	}{
		"answered, and the status of the request is not believed": {
			object: review, want: kubeannex.ListReviewStatus{Path: "/api/v1/pods"}, wantAsked: 1,
		},
		"refused by admission":         {object: review, validate: refused, wantErr: refused},
		"the list's own error is bare": {object: review, err: expired, wantErr: expired, wantAsked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			explainer := &fakeExplainer{err: tc.err}
			before := review.DeepCopy()
			got, err := NewREST(explainer).Create(t.Context(), tc.object, func(context.Context, runtime.Object) error { return tc.validate }, &metav1.CreateOptions{})
			if err != tc.wantErr { //nolint:errorlint // bare is what is promised
				t.Fatalf("got error %v, want %v", err, tc.wantErr)
			}
			if explainer.asked != tc.wantAsked {
				t.Errorf("asked %d times, want %d", explainer.asked, tc.wantAsked)
			}
			if diff := cmp.Diff(before, review); diff != "" {
				t.Errorf("the request was changed (-before +after):\n%s", diff)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tc.want, got.(*kubeannex.ListReview).Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := NewREST(&fakeExplainer{}).Create(t.Context(), &kubeannex.AnnexedGroup{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v for another kind, want a bad request", err)
	}
}
