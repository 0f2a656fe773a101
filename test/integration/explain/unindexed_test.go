// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	// Every rareOf-th trinket has the label app.
	trinketsInProd, trinketsInTest, rareOf = 640, 60, 32
	trinketsPath                           = "/apis/lab.annex.test/v1/namespaces/prod/trinkets"
)

// startTrinkets starts a server with a namespaced kind that has no field to select by and of
// which nobody has declared an index, as most kinds are, and with a cache of it that is filled.
func startTrinkets(t *testing.T) world {
	t.Helper()
	server := testserver.StartStandalone(t)
	crd, err := env.GadgetCRD()
	if err != nil {
		t.Fatal(err)
	}
	crd.Name = "trinkets." + env.FixtureGroup
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "trinkets", Singular: "trinket", Kind: "Trinket", ListKind: "TrinketList"}
	crd.Spec.Versions = crd.Spec.Versions[:1]
	crd.Spec.Versions[0].SelectableFields = nil
	if err := env.InstallCRD(t.Context(), server.ClientConfig, crd); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	trinkets := client.Resource(schema.GroupVersionResource{Group: env.FixtureGroup, Version: "v1", Resource: "trinkets"})
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range trinketsInProd + trinketsInTest {
		trinket := env.Object("Trinket", "prod", fmt.Sprintf("t-%05d", i), map[string]any{"size": int64(i % 7)})
		if i >= trinketsInProd {
			trinket.SetNamespace("test")
		}
		if i%rareOf == 0 {
			trinket.SetLabels(map[string]string{"app": "x"})
		}
		group.Go(func() error {
			_, err := trinkets.Namespace(trinket.GetNamespace()).Create(ctx, trinket, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w := world{config: rest.CopyConfig(server.ClientConfig)}
	w.config.DisableCompression = true
	if w.annex, err = versioned.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	w.mustList(t, trinketsPath) // the cache starts with the first
	return w
}

// TestKindWithoutIndex has figures and advice for those whom an index would help.
func TestKindWithoutIndex(t *testing.T) {
	w := startTrinkets(t)
	for name, tc := range map[string]struct {
		query             string
		scanned, returned int64
		wantAdvice        []string
	}{
		"a namespace": {"", trinketsInProd, trinketsInProd, []string{"UseInformer", "Paginate"}},
		"a page":      {"?limit=100", 100, 100, nil},
		"a label":     {"?labelSelector=app%3Dx", trinketsInProd, trinketsInProd / rareOf, []string{"IndexLabel", "UseCache"}},
		"no label":    {"?labelSelector=%21app&resourceVersion=0", trinketsInProd, trinketsInProd - trinketsInProd/rareOf, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var status v1alpha1.ListReviewStatus
			err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
				var err error
				status, err = w.review(t, v1alpha1.ListReviewSpec{Path: trinketsPath + tc.query, Analyze: true})
				return err == nil && status.Estimate.Bytes != nil, err // the size of an object is sampled
			})
			if err != nil {
				t.Fatalf("no estimate of bytes: %v, %+v", err, status.Estimate)
			}
			estimate, actual := status.Estimate, status.Actual
			if diff := cmp.Diff("total scanned returned bytes", figures(estimate)); diff != "" {
				t.Fatalf("figures (-want +got):\n%s", diff)
			}
			want := []int64{trinketsInProd + trinketsInTest, tc.scanned, tc.returned}
			if diff := cmp.Diff(want, []int64{*estimate.Total, *estimate.Scanned, *estimate.Returned}); diff != "" {
				t.Errorf("estimated total, scanned and returned (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, []int64{*actual.Total, *actual.Scanned, *actual.Returned}); diff != "" {
				t.Errorf("actual total, scanned and returned (-want +got):\n%s", diff)
			}
			if *estimate.Bytes < *actual.Bytes/3 || *estimate.Bytes > *actual.Bytes*3 {
				t.Errorf("estimated %d bytes, got %d", *estimate.Bytes, *actual.Bytes)
			}
			var advice []string
			for _, a := range status.Advice {
				advice = append(advice, a.Reason)
			}
			if diff := cmp.Diff(tc.wantAdvice, advice); diff != "" {
				t.Errorf("advice (-want +got):\n%s", diff)
			}
		})
	}
}
