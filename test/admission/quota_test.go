// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countOf is the name under which a quota counts objects.
func countOf(resource, group string) corev1.ResourceName {
	return corev1.ResourceName("count/" + resource + "." + group)
}

// newQuota creates a quota of n objects and waits until the quota controller has counted.
func newQuota(t *testing.T, namespace, resourceName string, n int64, groups ...string) {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few-" + resourceName},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}},
	}
	for _, group := range groups {
		quota.Spec.Hard[countOf(resourceName, group)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	if _, err := suite.kube.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var last map[string]int64
	err := poll(t, func(context.Context) (bool, error) {
		last = used(t, namespace, quota.Name)
		return len(last) == len(groups), nil
	})
	if err != nil {
		t.Fatalf("waiting for the usage of %s: %v, last %v", quota.Name, err, last)
	}
}

// used is the usage that a quota shows.
func used(t *testing.T, namespace, name string) map[string]int64 {
	t.Helper()
	quota, err := suite.kube.CoreV1().ResourceQuotas(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	result := map[string]int64{}
	for name, quantity := range quota.Status.Used {
		result[string(name)] = quantity.Value()
	}
	return result
}

// waitUsed waits until a quota shows n objects, and fails when it shows more meanwhile.
func waitUsed(t *testing.T, namespace, quota string, count corev1.ResourceName, n int64) {
	t.Helper()
	var last int64
	err := poll(t, func(context.Context) (bool, error) {
		last = used(t, namespace, quota)[string(count)]
		return last == n, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s to be %d: %v, last %d", count, n, err, last)
	}
}

// TestObjectCountQuota reproduces kubernetes-retired/service-catalog 1197: a quota counts objects that an
// aggregated server keeps, and is enforced there (kubernetes/kubernetes 64201).
func TestObjectCountQuota(t *testing.T) {
	namespace := newNamespace(t, "counted")
	newQuota(t, namespace, "gadgets", 3, groups()...)
	compare(t, namespace, func(s *session) {
		path, count := s.of("gadgets"), countOf("gadgets", s.target.group)
		for _, name := range []string{"one", "two"} {
			s.do("create "+name, http.MethodPost, path, gadget(name, "red"))
		}
		s.do("dry create within the quota", http.MethodPost, path+"?dryRun=All", gadget("dry", "red"))
		s.do("create three", http.MethodPost, path, gadget("three", "red"))
		if got := used(t, namespace, "few-gadgets")[string(count)]; got != 3 {
			t.Errorf("%s: %d objects are counted as soon as three are created", s.target.name, got)
		}
		s.do("create four", http.MethodPost, path, gadget("four", "red"))
		s.do("dry create four", http.MethodPost, path+"?dryRun=All", gadget("four", "red"))
		s.do("create one again", http.MethodPost, path, gadget("one", "red"))
		s.do("update one", http.MethodPatch, path+"/one", `{"spec":{"color":"blue"}}`)
		s.do("update the status of one", http.MethodPatch, path+"/one/status", `{"status":{"size":1}}`)
		s.do("delete two", http.MethodDelete, path+"/two", "")
		waitUsed(t, namespace, "few-gadgets", count, 2)
		s.do("create five in its place", http.MethodPost, path, gadget("five", "red"))
		s.do("create six", http.MethodPost, path, gadget("six", "red"))
		waitUsed(t, namespace, "few-gadgets", count, 3)
	})
}

// TestLimitedResource asks for what the file of admission configuration allows within a quota only.
func TestLimitedResource(t *testing.T) {
	namespace := newNamespace(t, "limited")
	widget := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","metadata":{"name":%q}}`, hostGroup+"/v1", name)
	}
	compare(t, namespace, func(s *session) {
		s.do("create without a quota", http.MethodPost, s.of("widgets"), widget("one"))
	})
	newQuota(t, namespace, "widgets", 1, groups()...)
	compare(t, namespace, func(s *session) {
		s.until("the quota to be known", http.MethodPost, s.of("widgets")+"?dryRun=All", widget("one"), func(a answer) bool {
			return a.Code == http.StatusCreated
		})
		s.do("create within the quota", http.MethodPost, s.of("widgets"), widget("one"))
		s.do("create above the quota", http.MethodPost, s.of("widgets"), widget("two"))
	})
}

// TestQuotaOfTwoReplicas creates more than the quota allows, at both replicas at once.
func TestQuotaOfTwoReplicas(t *testing.T) {
	const allowed, tried = 10, 24
	namespace := newNamespace(t, "raced")
	newQuota(t, namespace, "gadgets", allowed, viaGroup)
	path := "/apis/" + viaGroup + "/v1/namespaces/" + namespace + "/gadgets"
	replicas := make([]*session, len(suite.annex.Replicas))
	for i := range replicas {
		replicas[i] = newSession(t, &target{name: fmt.Sprintf("replica %d", i), group: viaGroup, config: replicaConfig(i)}, namespace)
		replicas[i].client("admin")
	}
	codes := map[int]int{}
	var mu sync.Mutex
	var creates sync.WaitGroup
	for i := range tried {
		creates.Go(func() {
			got := replicas[i%len(replicas)].ask("admin", "create", http.MethodPost, path, gadget(fmt.Sprintf("g-%d", i), "red"))
			mu.Lock()
			defer mu.Unlock()
			codes[got.Code]++
			if got.Code != http.StatusCreated && !strings.Contains(got.Body, "exceeded quota") {
				t.Errorf("create %d: %d %s", i, got.Code, got.Body)
			}
		})
	}
	creates.Wait()
	if diff := cmp.Diff(map[int]int{http.StatusCreated: allowed, http.StatusForbidden: tried - allowed}, codes); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	waitUsed(t, namespace, "few-gadgets", countOf("gadgets", viaGroup), allowed)
}
