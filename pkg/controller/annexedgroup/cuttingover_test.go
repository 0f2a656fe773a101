// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/controller/cluster"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
)

func apiServiceOf(change ...func(*apiregistrationv1.APIService)) *apiregistrationv1.APIService {
	service := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.lab.annex.test", Labels: map[string]string{definitionguard.AutomanagedLabel: "true", "kept": "yes"}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: "lab.annex.test", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100},
	}
	for _, c := range change {
		c(service)
	}
	return service
}

func annexService(service *apiregistrationv1.APIService) {
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)}
	service.Spec.CABundle = []byte("authority")
	delete(service.Labels, definitionguard.AutomanagedLabel)
}

func foreignService(service *apiregistrationv1.APIService) {
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "other", Name: "server"}
	service.Labels = nil
}

func TestTakeOverVersion(t *testing.T) {
	cases := map[string]struct {
		stored  *apiregistrationv1.APIService
		want    *apiregistrationv1.APIService
		wantErr bool
	}{
		"kube-apiserver's own": {stored: apiServiceOf(), want: apiServiceOf(annexService)},
		"annex's already":      {stored: apiServiceOf(annexService), want: apiServiceOf(annexService)},
		"annex's, label set again by somebody": {
			stored: apiServiceOf(annexService, func(s *apiregistrationv1.APIService) { s.Labels[definitionguard.AutomanagedLabel] = "true" }),
			want:   apiServiceOf(annexService),
		},
		"somebody else's": {stored: apiServiceOf(foreignService), want: apiServiceOf(foreignService), wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := aggregatorfake.NewClientset(tc.stored)
			r := &Reconciler{Connections: cluster.Connections{
				Host:         &cluster.Server{APIServices: client},
				AnnexService: apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)},
				AnnexCA:      func() []byte { return []byte("authority") },
			}}
			err := r.takeOverVersion(t.Context(), tc.stored)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got %v, want an error: %t", err, tc.wantErr)
			}
			got, err := client.ApiregistrationV1().APIServices().Get(t.Context(), "v1.lab.annex.test", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got.ManagedFields, got.TypeMeta = nil, metav1.TypeMeta{}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("APIService (-want +got):\n%s", diff)
			}
		})
	}
}
