// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// annexUser is who annex is in the host.
const annexUser = "annex-apiserver"

// parametrised refuses the colour that a ConfigMap names.
const parametrised = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: parametrised}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [lab.annex.test, via.annex.test, dir.annex.test], apiVersions: [v1], operations: [CREATE], resources: [gadgets]}
  validations:
  - {expression: "object.spec.color != params.data.color", messageExpression: "'no ' + params.data.color + ' ones'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: parametrised}
spec:
  policyName: parametrised
  validationActions: [Deny]
  paramRef: {name: colors, namespace: parametrised, parameterNotFoundAction: Deny}
  matchResources:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: parametrised}}
`

// TestPolicyParameters gives annex the right to read what a policy takes its parameters from,
// which kube-apiserver needs not be given.
func TestPolicyParameters(t *testing.T) {
	namespace := newNamespace(t, "parametrised")
	grant(t, "", annexUser, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	colors := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "colors"}, Data: map[string]string{"color": "red"}}
	if _, err := suite.kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), colors, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	applyManifest(t, parametrised)
	compare(t, namespace, func(s *session) {
		path := s.of("gadgets")
		s.until("the policy to be known", http.MethodPost, path+"?dryRun=All", gadget("probe", "red"), func(a answer) bool {
			return a.Code == http.StatusUnprocessableEntity && strings.Contains(a.Body, "no red ones")
		})
		s.do("create a red one", http.MethodPost, path, gadget("one", "red"))
		s.do("create a blue one", http.MethodPost, path, gadget("one", "blue"))
	})
}
