// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/test/env"
)

func groups() []string { return []string{hostGroup, viaGroup, directGroup} }

// startWebhook runs a webhook on creates and updates. answer fills the response.
func startWebhook(t *testing.T, answer func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		answer(review.Request, review.Response)
		review.Request = nil
		w.Header().Set("Content-Type", jsonType)
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Errorf("answering a review: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	return admissionregistrationv1.WebhookClientConfig{
		URL:      ptr.To(server.URL),
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// rules are creates and updates of gadgets.
func rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: append(groups(), movedGroup), APIVersions: []string{"v1"}, Resources: []string{"gadgets"}},
	}}
}

func inNamespace(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}}
}

func paint(value string) []byte {
	return []byte(`[{"op":"add","path":"/spec/note","value":"` + value + `"}]`)
}

// installWebhooks installs one webhook that writes a note and one that refuses some colours.
func installWebhooks(t *testing.T, namespace string) {
	t.Helper()
	mutating := startWebhook(t, func(_ *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
		response.Patch, response.PatchType = paint("by webhook"), ptr.To(admissionv1.PatchTypeJSONPatch)
		response.Warnings = []string{"noted"}
	})
	validating := startWebhook(t, func(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
		switch {
		case bytes.Contains(request.Object.Raw, []byte(`"red"`)):
			response.Allowed = false
			response.Result = &metav1.Status{Code: http.StatusTeapot, Message: "no red ones, " + request.UserInfo.Username, Reason: metav1.StatusReasonConflict}
		case bytes.Contains(request.Object.Raw, []byte(`"amber"`)):
			response.Warnings = []string{"amber is nearly red"}
		}
	})
	registrations, create := suite.kube.AdmissionregistrationV1(), metav1.CreateOptions{}
	_, err := registrations.MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "note.annex.test", ClientConfig: mutating, Rules: rules(), NamespaceSelector: inNamespace(namespace),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, create)
	if err != nil {
		t.Fatal(err)
	}
	_, err = registrations.ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "color.annex.test", ClientConfig: validating, Rules: rules(), NamespaceSelector: inNamespace(namespace),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, create)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := registrations.MutatingWebhookConfigurations().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := registrations.ValidatingWebhookConfigurations().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestWebhooks creates and updates what webhooks change and refuse.
func TestWebhooks(t *testing.T) {
	namespace := newNamespace(t, "hooked")
	installWebhooks(t, namespace)
	compare(t, namespace, func(s *session) {
		path := s.of("gadgets")
		s.until("both webhooks to be called", http.MethodPost, path+"?dryRun=All", gadget("probe", "red"), func(a answer) bool {
			return a.Code == http.StatusTeapot && strings.Contains(a.Body, "noted")
		})
		writeColors(s)
	})
}

// writeColors asks for what webhooks and policies of these tests decide about.
func writeColors(s *session) {
	path := s.of("gadgets")
	s.do("create a red one", http.MethodPost, path, gadget("one", "red"))
	s.do("create an amber one", http.MethodPost, path, gadget("one", "amber"))
	s.do("dry create a blue one", http.MethodPost, path+"?dryRun=All", gadget("two", "blue"))
	s.do("update to red", http.MethodPatch, path+"/one?fieldManager=m", `{"spec":{"color":"red"}}`)
	s.do("update to blue", http.MethodPatch, path+"/one?fieldManager=m", `{"spec":{"color":"blue"}}`)
	s.do("update the status", http.MethodPatch, path+"/one/status?fieldManager=m", `{"status":{"size":1}}`)
	s.do("delete", http.MethodDelete, path+"/one", "")
}

// TestPolicies is TestWebhooks with policies.
func TestPolicies(t *testing.T) {
	namespace := newNamespace(t, "ruled")
	grant(t, namespace, "painter", gadgetRights("create"))
	applyManifest(t, strings.ReplaceAll(policies, "<namespace>", namespace))
	compare(t, namespace, func(s *session) {
		path := s.of("gadgets")
		s.until("the validating policy to be known", http.MethodPost, path+"?dryRun=All", gadget("probe", "red"), func(a answer) bool {
			return a.Code == http.StatusUnprocessableEntity
		})
		s.until("the mutating policy to be known", http.MethodPost, path+"?dryRun=All", gadget("probe", "blue"), func(a answer) bool {
			return strings.Contains(a.Body, `"note":"by policy"`) && strings.Contains(a.Body, `"size":3`)
		})
		s.until("the policy that warns to be known", http.MethodPost, path+"?dryRun=All", gadget("probe", "amber"), func(a answer) bool {
			return strings.Contains(a.Body, "amber is nearly red")
		})
		writeColors(s)
		s.as("painter", "create a blue one without rights on pods", http.MethodPost, path, gadget("two", "blue"))
	})
}

// policies refuse red, warn of amber, write a note by a patch and a size by an apply.
const policies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: <namespace>-colors}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [lab.annex.test, via.annex.test, dir.annex.test, mov.annex.test], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [gadgets]}
  variables:
  - {name: mayPaint, expression: "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()"}
  validations:
  - expression: "variables.mayPaint && namespaceObject.metadata.name == request.namespace"
    message: painters only
  - expression: "object.spec.color != 'red'"
    messageExpression: "'no red ones, ' + request.userInfo.username + ', and not ' + object.spec.color"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: <namespace>-colors}
spec:
  policyName: <namespace>-colors
  validationActions: [Deny]
  matchResources:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: <namespace>}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: <namespace>-warnings}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [lab.annex.test, via.annex.test, dir.annex.test, mov.annex.test], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [gadgets]}
  validations:
  - {expression: "object.spec.color != 'amber'", message: amber is nearly red}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: <namespace>-warnings}
spec:
  policyName: <namespace>-warnings
  validationActions: [Warn, Audit]
  matchResources:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: <namespace>}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: <namespace>-notes}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [lab.annex.test, via.annex.test, dir.annex.test, mov.annex.test], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [gadgets]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/spec/note', value: 'by policy'}]"}
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{size: 3}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: <namespace>-notes}
spec:
  policyName: <namespace>-notes
  matchResources:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: <namespace>}}
`

// alwaysPullImages is below the repository root.
const alwaysPullImages = "artifacts/policies/always-pull-images.yaml"

// podSpec describes pods of podImages containers, one of which always pulls its image anyway.
const (
	podSpec = `{"initContainers":[{"name":"i","image":"a"}],"containers":[{"name":"c","image":"a"},{"name":"d","image":"b","imagePullPolicy":"Always"},` +
		`{"name":"e","image":"b","imagePullPolicy":"IfNotPresent"}]}`
	podImages = 4
)

func imagesRollout() string { return object("Rollout", "one", `{"template":{"spec":`+podSpec+`}}`) }

// imagePolicy is the policy that users are given, for the workloads of other groups.
func imagePolicy(t *testing.T, groups ...string) string {
	t.Helper()
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(root, alwaysPullImages))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(manifest), "[argoproj.io]", "["+strings.Join(groups, ", ")+"]")
}

// untilImagesArePulled waits until the target knows the policy.
func (s *session) untilImagesArePulled() {
	s.t.Helper()
	s.until("the policy of images to be known", http.MethodPost, s.of("rollouts")+"?dryRun=All", imagesRollout(), func(a answer) bool {
		return strings.Contains(a.Body, `"imagePullPolicy":"Always","name":"c"`)
	})
}

// TestAlwaysPullImages applies the policy that users are given to kinds that annex serves.
func TestAlwaysPullImages(t *testing.T) {
	namespace := newNamespace(t, "pulling")
	applyManifest(t, imagePolicy(t, groups()...))
	rollout := imagesRollout()
	workflow := object("Workflow", "one", `{"templates":[{"name":"a","container":{"image":"a"},"initContainers":[{"image":"b"}],"sidecars":[{"image":"b"},{"image":"c"}]},`+
		`{"name":"b","script":{"image":"a","imagePullPolicy":"Never"}},{"name":"c","steps":[[{"name":"s"}]]},{"name":"d","containerSet":{"containers":[{"image":"a"},{"image":"b"}]}}]}`)
	compare(t, namespace, func(s *session) {
		s.untilImagesArePulled()
		for _, step := range []struct {
			resource, body string
			pulled         int
		}{{"rollouts", rollout, podImages}, {"workflows", workflow, 7}} {
			got := s.do("create one of "+step.resource, http.MethodPost, s.of(step.resource), step.body)
			if n := strings.Count(got.Body, `"imagePullPolicy":"Always"`); n != step.pulled || got.Code != http.StatusCreated {
				t.Errorf("%s: %d containers of %s always pull, want %d: %d %s", s.target.name, n, step.resource, step.pulled, got.Code, got.Body)
			}
			if strings.Contains(got.Body, "IfNotPresent") || strings.Contains(got.Body, "Never") {
				t.Errorf("%s: a container of %s does not always pull: %s", s.target.name, step.resource, got.Body)
			}
			s.do("create an empty one of "+step.resource, http.MethodPost, s.of(step.resource), strings.Replace(object("?", "empty", `{}`), "?", kindOf(step.resource), 1))
		}
		s.do("update a rollout", http.MethodPatch, s.of("rollouts")+"/one?fieldManager=m", `{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"n"}]}}}}`)
	})
	checkDeployment(t, namespace)
}

func kindOf(resource string) string {
	return strings.ToUpper(resource[:1]) + strings.TrimSuffix(resource[1:], "s")
}

func object(kind, name, spec string) string {
	return `{"apiVersion":"` + hostGroup + `/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

// checkDeployment tries the policy on a built-in kind of each shape.
func checkDeployment(t *testing.T, namespace string) {
	t.Helper()
	s := newSession(t, targets()[0], namespace)
	const template = `{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"<restart>","containers":[{"name":"c","image":"a:1"}]}}`
	always, never := strings.Replace(template, "<restart>", "Always", 1), strings.Replace(template, "<restart>", "Never", 1)
	for path, body := range map[string]string{
		"/apis/apps/v1/namespaces/" + namespace + "/deployments": `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + always + `}}`,
		"/apis/batch/v1/namespaces/" + namespace + "/cronjobs":   `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"c"},"spec":{"schedule":"0 0 * * *","jobTemplate":{"spec":{"template":` + never + `}}}}`,
		"/apis/batch/v1/namespaces/" + namespace + "/jobs":       `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"template":` + never + `}}`,
		"/api/v1/namespaces/" + namespace + "/pods":              `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"a:1"}]}}`,
	} {
		got := s.ask("admin", path, http.MethodPost, path+"?dryRun=All", body)
		if got.Code != http.StatusCreated || !strings.Contains(got.Body, `"imagePullPolicy":"Always"`) {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
}

// applyManifest creates policies and bindings, which end with the test.
func applyManifest(t *testing.T, manifest string) {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		createPolicy(t, object)
	}
}
