// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// podOf returns the pod that an object is or makes.
func podOf(t *testing.T, d document) *corev1.PodSpec {
	t.Helper()
	fields := map[string][]string{
		"Pod": {"spec"}, "Deployment": {"spec", "template", "spec"}, "StatefulSet": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
	}[d.GetKind()]
	if fields == nil {
		return nil
	}
	object, found, err := unstructured.NestedMap(d.Object, fields...)
	if err != nil || !found {
		t.Fatalf("%s %s has no pod: %v", d.GetKind(), d.GetName(), err)
	}
	pod := &corev1.PodSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestContainersAreConfined holds every container, also those of hooks, to the
// same narrow rights.
func TestContainersAreConfined(t *testing.T) {
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532),
		FSGroup: ptr.To[int64](65532), FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		containers := 0
		for _, d := range all {
			pod := podOf(t, d)
			if pod == nil {
				continue
			}
			if diff := cmp.Diff(wantPod, pod.SecurityContext); diff != "" {
				t.Errorf("pod of %s (-want +got):\n%s", d.GetName(), diff)
			}
			if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.AutomountServiceAccountToken == nil {
				t.Errorf("pod of %s is of the node, or leaves open whether it gets a token", d.GetName())
			}
			for _, volume := range pod.Volumes {
				if volume.HostPath != nil {
					t.Errorf("volume %s of %s is of the node", volume.Name, d.GetName())
				}
			}
			if len(pod.EphemeralContainers) > 0 {
				t.Errorf("%s has containers that are not looked at", d.GetName())
			}
			for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
				containers++
				if diff := cmp.Diff(wantContainer, container.SecurityContext); diff != "" {
					t.Errorf("container %s of %s (-want +got):\n%s", container.Name, d.GetName(), diff)
				}
				if container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().IsZero() {
					t.Errorf("container %s of %s has no memory request or limit", container.Name, d.GetName())
				}
			}
		}
		if containers < 4 {
			t.Errorf("%d containers found, want at least those of both programs and both hooks", containers)
		}
	})
}

// TestTokens says who gets credentials of the cluster: nobody by accident.
func TestTokens(t *testing.T) {
	want := map[string]bool{"annex-apiserver": true, "annex-controller": true, "annex-etcd": false, "annex-uninstall": true, "annex-test": true}
	got := map[string]bool{}
	for _, d := range documents(t, render(t)) {
		if pod := podOf(t, d); pod != nil {
			got[d.GetName()] = ptr.Deref(pod.AutomountServiceAccountToken, true)
		}
		if automount, _, _ := unstructured.NestedBool(d.Object, "automountServiceAccountToken"); d.GetKind() == "ServiceAccount" && automount {
			t.Errorf("ServiceAccount %s gives every pod a token", d.GetName())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods with a token (-want +got):\n%s", diff)
	}
}

// TestCertificatesAreVerified finds what would skip the verification of a server.
func TestCertificatesAreVerified(t *testing.T) {
	skips := regexp.MustCompile(`(?i)insecure`)
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		for _, d := range all {
			content, err := json.Marshal(d.Object)
			if err != nil {
				t.Fatal(err)
			}
			if skips.Match(content) {
				t.Errorf("%s %s skips verification", d.GetKind(), d.GetName())
			}
		}
		service := find(t, all, "APIService", "v1alpha1.kubeannex.io")
		if _, found, _ := unstructured.NestedFieldNoCopy(service.Object, "spec", "caBundle"); found {
			t.Error("the chart names a caBundle, which is annex-controller's: an upgrade would take it away")
		}
	})
}

// roles returns the rules of every Role and ClusterRole, by kind and name.
func roles(t *testing.T, all []document) map[string][]rbacv1.PolicyRule {
	t.Helper()
	found := map[string][]rbacv1.PolicyRule{}
	for _, d := range all {
		if d.GetKind() != "Role" && d.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.Role{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, role); err != nil {
			t.Fatal(err)
		}
		found[d.GetKind()+" "+d.GetNamespace()+"/"+d.GetName()] = role.Rules
	}
	return found
}

// TestEveryRuleHasAReason looks for a comment above each rule.
func TestEveryRuleHasAReason(t *testing.T) {
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		for _, d := range all {
			if d.GetKind() != "Role" && d.GetKind() != "ClusterRole" {
				continue
			}
			rules, _, err := unstructured.NestedSlice(d.Object, "rules")
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := strings.Cut(d.text, "\nrules:\n")
			reasons := 0
			lines := strings.Split(text, "\n")
			for i, line := range lines {
				if !strings.HasPrefix(line, "  -") {
					continue
				}
				if i > 0 && strings.HasPrefix(lines[i-1], "  # ") {
					reasons++
				}
			}
			if reasons != len(rules) {
				t.Errorf("%s %s has %d rules and %d reasons", d.GetKind(), d.GetName(), len(rules), reasons)
			}
		}
	})
}

// TestWildcards allows them only where the groups to adopt are not known.
func TestWildcards(t *testing.T) {
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		for role, rules := range roles(t, all) {
			for _, rule := range rules {
				wide := slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Verbs, "*")
				if !wide && !slices.Contains(rule.Resources, "*") {
					continue
				}
				if role != "ClusterRole /annex-controller:adopted-groups" || (wide && name == "everything") {
					t.Errorf("%s has wildcards in %v", role, rule)
				}
			}
		}
	})
}

// TestSecretsByName says which Secrets can be read: those that annex issues, in its own namespace.
func TestSecretsByName(t *testing.T) {
	tests := map[string][]string{
		"embedded":    {"annex-ca", "annex-apiserver-tls", "annex-controller-tls"},
		"external":    {"annex-ca", "annex-apiserver-tls", "annex-controller-tls"},
		"statefulset": {"annex-ca", "annex-apiserver-tls", "annex-controller-tls", "annex-etcd-ca", "annex-etcd-server-tls", "annex-etcd-peer-tls", "annex-etcd-client-tls"},
	}
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		var got []string
		for role, rules := range roles(t, all) {
			for _, rule := range rules {
				if !slices.Contains(rule.Resources, "secrets") {
					continue
				}
				if role != "Role "+namespace+"/annex-controller" {
					t.Errorf("%s may use secrets", role)
				}
				if len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"}) {
					t.Errorf("%s may %v any Secret", role, rule.Verbs)
				}
				got = append(got, rule.ResourceNames...)
			}
		}
		if diff := cmp.Diff(tests[name], got); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
	})
}

// TestRulesWithoutNames lists the objects that may be changed whatever their name
// is, and why the rule cannot have names.
func TestRulesWithoutNames(t *testing.T) {
	const controller, own = "ClusterRole /annex-controller ", "Role " + namespace + "/annex-controller "
	reasons := map[string]string{
		"ClusterRole /annex-apiserver resourcequotas/status":      "quotas of any namespace are charged",
		controller + "annexedgroups":                              "their names are those of adopted groups",
		controller + "annexedgroups/status":                       "the same",
		controller + "annexedgroups/import":                       "the same",
		controller + "customresourcedefinitions":                  "the same",
		controller + "customresourcedefinitions/status":           "the same",
		controller + "apiservices":                                "the same",
		controller + "validatingwebhookconfigurations":            "fences and holds have names of groups",
		"ClusterRole /annex-controller:adopted-groups *":          "objects of adopted groups",
		"ClusterRole /annex-controller:adopted-groups pods":       "objects of adopted groups own them",
		"ClusterRole /annex-controller:adopted-groups configmaps": "the same",
		own + "configmaps":                                        "owners are noted in some with names of groups",
		own + "events":                                            "their names are made up",
		"Role default/annex-controller:default events":            "the same",
		"ClusterRole /annex:operator annexedgroups":               "for people, and bound to nobody",
	}
	unused := maps.Clone(reasons)
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		for role, rules := range roles(t, all) {
			for _, rule := range rules {
				if len(rule.ResourceNames) > 0 && slices.Contains(rule.Verbs, "create") {
					t.Errorf("%s names objects to create, which no request has: %v", role, rule)
				}
				changes := slices.ContainsFunc(rule.Verbs, func(verb string) bool {
					return slices.Contains([]string{"update", "patch", "delete", "deletecollection", "*"}, verb)
				})
				if !changes || len(rule.ResourceNames) > 0 {
					continue
				}
				for _, resource := range rule.Resources {
					delete(unused, role+" "+resource)
					if reasons[role+" "+resource] == "" {
						t.Errorf("%s may %v any of %s: name them, or the reason why not", role, rule.Verbs, resource)
					}
				}
			}
		}
	})
	if len(unused) > 0 {
		t.Errorf("reasons of rules that are not there: %v", unused)
	}
}

// TestRightsOfUsers says what becomes part of the roles that every cluster has.
func TestRightsOfUsers(t *testing.T) {
	const prefix = "rbac.authorization.k8s.io/aggregate-to-"
	tests := map[string]struct {
		args []string
		want []string
	}{
		"by default": {
			want: []string{"admin may get, list of listprofiles", "view may get, list, watch of annexedgroups", "view may get, list, watch of annexedgroups/status"},
		},
		"with list reviews for admins": {
			args: []string{"--set=rbac.users.listReviews.aggregateTo={admin}"},
			want: []string{
				"admin may create of listreviews", "admin may get, list of listprofiles",
				"view may get, list, watch of annexedgroups", "view may get, list, watch of annexedgroups/status",
			},
		},
		"switched off": {
			args: []string{"--set=rbac.users.aggregate=false"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range documents(t, render(t, test.args...)) {
				for label := range d.GetLabels() {
					role, ok := strings.CutPrefix(label, prefix)
					if !ok {
						continue
					}
					for _, rule := range roles(t, []document{d})["ClusterRole /"+d.GetName()] {
						for _, resource := range rule.Resources {
							got = append(got, role+" may "+strings.Join(rule.Verbs, ", ")+" of "+resource)
						}
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("resources in roles of the cluster (-want +got):\n%s", diff)
			}
		})
	}
}
