// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// TestTakeOver reproduces mckinsey/agents-at-scale-ark 2684, where admission ended with the move behind an
// aggregated server: every verdict is the same before and after, and no object is counted twice meanwhile.
func TestTakeOver(t *testing.T) {
	namespace := newNamespace(t, "moved")
	for _, name := range []string{"moved-hooked", "moved-ruled", "moved-ending"} {
		newNamespace(t, name)
	}
	newQuota(t, namespace, "gadgets", 3, movedGroup)
	installWebhooks(t, "moved-hooked")
	applyManifest(t, strings.ReplaceAll(policies, "<namespace>", "moved-ruled"))
	applyManifest(t, imagePolicy(t, movedGroup))
	terminate(t, "moved-ending")
	grant(t, "moved-hooked", "mover", gadgetRights("create", "update", "patch", "get"))

	target := &target{name: "host", group: movedGroup, config: targets()[0].config}
	counted := followUsage(t, namespace)
	fill := newSession(t, target, namespace)
	for _, name := range []string{"one", "two", "three"} {
		fill.must("create "+name, http.StatusCreated, http.MethodPost, fill.of("gadgets"), gadget(name, "red"))
	}
	fill.must("create owned", http.StatusCreated, http.MethodPost, strings.Replace(fill.of("gadgets"), "moved", "moved-hooked", 1), gadget("free", "blue"))
	before := newSession(t, target, namespace)
	before.untilAllKnown()
	before.askForVerdicts()
	for _, a := range before.answers {
		t.Logf("%s: %d %s", a.Step, a.Code, message(a.Body))
	}

	group := suite.cluster.NamedGroup(movedGroup)
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)

	target.name = "annex behind kube-apiserver"
	after := newSession(t, target, namespace)
	after.askForVerdicts()
	if diff := cmp.Diff(before.answers, after.answers); diff != "" {
		t.Errorf("the group has moved (-before +after):\n%s", diff)
	}
	after.must("delete one", http.StatusOK, http.MethodDelete, after.of("gadgets")+"/one", "")
	waitUsed(t, namespace, "few-gadgets", countOf("gadgets", movedGroup), 2)
	after.must("create four", http.StatusCreated, http.MethodPost, after.of("gadgets"), gadget("four", "red"))
	after.must("create five", http.StatusForbidden, http.MethodPost, after.of("gadgets"), gadget("five", "red"))
	after.must("create a rollout", http.StatusCreated, http.MethodPost, after.of("rollouts"), object("Rollout", "pulled", `{"template":{"spec":`+podSpec+`}}`))
	if kept := storedRollout(t, namespace, "pulled"); strings.Count(kept, `"imagePullPolicy":"Always"`) != podImages {
		t.Errorf("not every container of a rollout in annex always pulls: %s", kept)
	}
	if diff := cmp.Diff([]int64{0, 1, 2, 3, 2, 3}, counted()); diff != "" {
		t.Errorf("counted meanwhile (-want +got):\n%s", diff)
	}
	t.Run("metrics", checkMetrics)
}

// storedRollout is what a replica of annex has of a rollout of movedGroup.
func storedRollout(t *testing.T, namespace, name string) string {
	t.Helper()
	s := newSession(t, &target{name: "annex", group: movedGroup, config: replicaConfig(0)}, namespace)
	return s.ask("admin", "read a rollout", http.MethodGet, s.of("rollouts")+"/"+name, "").Body
}

// must is ask for an answer with a known code.
func (s *session) must(step string, code int, method, path, body string) {
	s.t.Helper()
	if got := s.ask("admin", step, method, path, body); got.Code != code {
		s.t.Fatalf("%s: %s: %d %s, want %d", s.target.name, step, got.Code, got.Body, code)
	}
}

// in is the path of gadgets in another namespace, for dry runs.
func (s *session) in(namespace string) string {
	return "/apis/" + hostGroup + "/v1/namespaces/" + namespace + "/gadgets?dryRun=All&fieldManager=m"
}

func (s *session) untilAllKnown() {
	s.t.Helper()
	for namespace, code := range map[string]int{
		"moved-hooked": http.StatusTeapot, "moved-ruled": http.StatusUnprocessableEntity, "moved-ending": http.StatusForbidden,
	} {
		s.until("a refusal in "+namespace, http.MethodPost, s.in(namespace), gadget("probe", "red"), func(a answer) bool { return a.Code == code })
	}
	s.until("the mutating policy to be known", http.MethodPost, s.in("moved-ruled"), gadget("probe", "blue"), func(a answer) bool {
		return strings.Contains(a.Body, `"note":"by policy"`)
	})
	s.untilImagesArePulled()
}

// askForVerdicts asks each plug-in for a refusal and, where there is one, for a change.
func (s *session) askForVerdicts() {
	s.t.Helper()
	s.do("create above the quota", http.MethodPost, s.of("gadgets"), gadget("four", "red"))
	s.do("create what a webhook refuses", http.MethodPost, s.in("moved-hooked"), gadget("new", "red"))
	s.do("create what webhooks change and warn of", http.MethodPost, s.in("moved-hooked"), gadget("new", "amber"))
	s.do("create what a policy refuses", http.MethodPost, s.in("moved-ruled"), gadget("new", "red"))
	s.do("create what policies change and warn of", http.MethodPost, s.in("moved-ruled"), gadget("new", "amber"))
	s.do("create what always pulls its images", http.MethodPost, s.of("rollouts")+"?dryRun=All", imagesRollout())
	s.do("create in a namespace that ends", http.MethodPost, s.in("moved-ending"), gadget("new", "blue"))
	s.do("create in no namespace", http.MethodPost, s.in("missing"), gadget("new", "blue"))
	blocking := owner("v1", "ConfigMap", "none", ownerUID, true)
	s.as("mover", "create with a blocking owner", http.MethodPost, s.in("moved-hooked"), gadget("new", "blue", blocking))
	s.as("mover", "update to an owner", http.MethodPatch, strings.Replace(s.in("moved-hooked"), "?", "/free?", 1),
		`{"metadata":{`+blocking+`"labels":{"a":"b"}}}`)
}

// followUsage watches the quota of gadgets of movedGroup. The function that it returns reads
// up to the present state and returns the different numbers in their order.
func followUsage(t *testing.T, namespace string) func() []int64 {
	t.Helper()
	stream, err := suite.kube.CoreV1().ResourceQuotas(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=few-gadgets"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	return func() []int64 {
		quota, err := suite.kube.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "few-gadgets", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var numbers []int64
		for event := range stream.ResultChan() {
			seen, ok := event.Object.(*corev1.ResourceQuota)
			if !ok {
				continue
			}
			quantity := seen.Status.Used[countOf("gadgets", movedGroup)]
			if n := quantity.Value(); len(numbers) == 0 || numbers[len(numbers)-1] != n {
				numbers = append(numbers, n)
			}
			if seen.ResourceVersion == quota.ResourceVersion {
				break
			}
		}
		return numbers
	}
}
