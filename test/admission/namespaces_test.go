// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// terminate deletes a namespace that a ConfigMap holds until the test ends.
func terminate(t *testing.T, namespace string) {
	t.Helper()
	maps := suite.kube.CoreV1().ConfigMaps(namespace)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"annex.test/hold"}}}
	if _, err := maps.Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := maps.Patch(context.WithoutCancel(t.Context()), held.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	if err := suite.kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestNamespaceLifecycle writes to a namespace that ends, and to one that does not exist.
func TestNamespaceLifecycle(t *testing.T) {
	namespace := newNamespace(t, "ending")
	for _, target := range targets() {
		s := newSession(t, target, namespace)
		got := s.ask("admin", "create", http.MethodPost, s.of("gadgets"), gadget("held", "red", `"finalizers":["annex.test/hold"],`))
		if got.Code != http.StatusCreated {
			t.Fatalf("%s: %d %s", target.name, got.Code, got.Body)
		}
	}
	terminate(t, namespace)
	compare(t, namespace, func(s *session) {
		path := s.of("gadgets")
		s.until("the end of the namespace to be known", http.MethodPost, path+"?dryRun=All", gadget("probe", "red"), func(a answer) bool {
			return a.Code == http.StatusForbidden
		})
		// What the namespace controller deletes changes by its own and is not compared.
		s.until("the gadget to be deleted", http.MethodGet, path+"/held", "", deleted)
		s.do("create", http.MethodPost, path, gadget("new", "red"))
		s.do("create with a generated name", http.MethodPost, path, `{"apiVersion":"`+hostGroup+`/v1","kind":"Gadget","metadata":{"generateName":"g-"}}`)
		s.do("dry create", http.MethodPost, path+"?dryRun=All", gadget("new", "red"))
		s.do("update", http.MethodPatch, path+"/held?fieldManager=m", `{"spec":{"color":"blue"}}`)
		s.do("update of the status", http.MethodPatch, path+"/held/status?fieldManager=m", `{"status":{"size":1}}`)
		s.do("delete", http.MethodDelete, path+"/held", "")
		s.do("release", http.MethodPatch, path+"/held?fieldManager=m", `{"metadata":{"finalizers":null}}`)
	})
	compare(t, "missing", func(s *session) {
		path := s.of("gadgets")
		s.do("create in no namespace", http.MethodPost, path, gadget("new", "red"))
		s.do("dry create in no namespace", http.MethodPost, path+"?dryRun=All", gadget("new", "red"))
		s.do("update in no namespace", http.MethodPatch, path+"/new", `{"spec":{"color":"blue"}}`)
		s.do("delete in no namespace", http.MethodDelete, path+"/new", "")
		s.do("list in no namespace", http.MethodGet, path, "")
	})
}

func deleted(a answer) bool { return a.Code == http.StatusOK && deletionMark.MatchString(a.Body) }
