// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/kubeannex/annex/pkg/controller/routeguard"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// makeLocal is a merge patch that gives an APIService back to kube-apiserver.
const makeLocal = `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}},"spec":{"service":null,"caBundle":null}}`

type apiServices = apiregistrationclient.APIServiceInterface

// routesAt is for the APIServices, as an administrator at one kube-apiserver.
func routesAt(t *testing.T, server int) apiServices {
	t.Helper()
	client, err := aggregatorclient.NewForConfig(suite.cluster.HostConfig(t, server))
	if err != nil {
		t.Fatal(err)
	}
	return client.ApiregistrationV1().APIServices()
}

// deleteRoute deletes the APIService of v1.
func deleteRoute(group *scenario.Group, dryRun ...string) func(context.Context, apiServices) error {
	return func(ctx context.Context, services apiServices) error {
		return services.Delete(ctx, "v1."+group.Name, metav1.DeleteOptions{DryRun: dryRun})
	}
}

// patchRoute changes the APIService of v1.
func patchRoute(group *scenario.Group, patch string, dryRun ...string) func(context.Context, apiServices) error {
	return func(ctx context.Context, services apiServices) error {
		_, err := services.Patch(ctx, "v1."+group.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
}

// mustBeGuarded waits until every kube-apiserver refuses to delete an APIService
// of the group, and fails the test when it allows another harmful change, or
// refuses a harmless one. Nothing is changed.
func mustBeGuarded(t *testing.T, group *scenario.Group) {
	t.Helper()
	for i := range suite.cluster.Host.APIServers {
		services := routesAt(t, i)
		err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
			return refused(group, deleteRoute(group, metav1.DryRunAll)(ctx, services))
		})
		if err != nil {
			t.Fatalf("kube-apiserver %d does not guard the APIServices: %v", i, err)
		}
		for name, patch := range map[string]string{
			"made local":    makeLocal,
			"redirected":    `{"spec":{"service":{"name":"somebody"}}}`,
			"given a CA":    `{"spec":{"caBundle":"e30="}}`,
			"unverified":    `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true}}`,
			"marked as its": `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}}}`,
		} {
			if err := refused(group, patchRoute(group, patch, metav1.DryRunAll)(scenario.Context(t), services)); err != nil {
				t.Errorf("kube-apiserver %d, an APIService is %s: %v", i, name, err)
			}
		}
		if err := patchRoute(group, `{"metadata":{"annotations":{"team":"a"}}}`, metav1.DryRunAll)(scenario.Context(t), services); err != nil {
			t.Errorf("kube-apiserver %d refuses an annotation: %v", i, err)
		}
		all := services.DeleteCollection(scenario.Context(t), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
			metav1.ListOptions{FieldSelector: "metadata.name=v1." + group.Name})
		if err := refused(group, all); err != nil {
			t.Errorf("kube-apiserver %d, all APIServices are deleted: %v", i, err)
		}
	}
	// Who removes annex removes this one.
	if err := routesAt(t, 0).Delete(scenario.Context(t), "v1alpha1.kubeannex.io", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("the APIService of annex's own group cannot be deleted: %v", err)
	}
}

// refused returns an error unless err is the guard's refusal and tells what to do.
func refused(group *scenario.Group, err error) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("answer %w, want the guard's refusal", err)
	}
	for _, words := range []string{
		"APIService v1." + group.Name + " sends the group " + group.Name + " to annex",
		"`kubectl annex release " + group.Name + "`",
		"delete the ValidatingAdmissionPolicyBinding " + routeguard.Name,
	} {
		if !strings.Contains(err.Error(), words) {
			return fmt.Errorf("answer %w, want one that says %q", err, words)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		return fmt.Errorf("answer %w, want one line", err)
	}
	return nil
}

// liftGuard deletes the guard's binding by hand, as in disaster recovery, and does
// what it had refused. It returns when that was done. The controller puts the
// binding back whenever it looks, so that both may have to be done again.
func liftGuard(t *testing.T, do func(context.Context, apiServices) error) time.Time {
	t.Helper()
	bindings, services := suite.cluster.HostKube(t).AdmissionregistrationV1().ValidatingAdmissionPolicyBindings(), routesAt(t, 0)
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		if err := bindings.Delete(ctx, routeguard.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return do(ctx, services)
	})
	if err != nil {
		t.Fatalf("an APIService cannot be changed without the guard: %v", err)
	}
	return time.Now()
}

// mustBeTakenBack waits until the APIService of v1 names annex again.
func mustBeTakenBack(t *testing.T, group *scenario.Group) {
	t.Helper()
	services := routesAt(t, 0)
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		service, err := services.Get(ctx, "v1."+group.Name, metav1.GetOptions{})
		if err == nil && service.Spec.Service == nil {
			err = fmt.Errorf("it is local, labels %v", service.Labels)
		}
		return err
	})
	if err != nil {
		t.Fatalf("the APIService does not come back to annex: %v", err)
	}
}
