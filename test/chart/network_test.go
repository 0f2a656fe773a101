// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portsOf are the ports of a pod by name.
func portsOf(t *testing.T, pod *corev1.PodSpec) map[string]int32 {
	t.Helper()
	ports := map[string]int32{}
	for _, container := range pod.Containers {
		for _, port := range container.Ports {
			if ports[port.Name] != 0 || port.HostPort != 0 || port.Protocol != corev1.ProtocolTCP {
				t.Errorf("port %s is there twice, or one of the node, or not TCP", port.Name)
			}
			ports[port.Name] = port.ContainerPort
		}
	}
	return ports
}

// TestPorts compares the ports that pods name with those that their command lines
// open and that probes and Services reach.
func TestPorts(t *testing.T) {
	opens := regexp.MustCompile(`^--(?:secure-port=|webhook-port=|health-probe-bind-address=.*:|metrics-bind-address=.*:|listen-[a-z]+-urls=.*:)(\d+)$`)
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		ports := map[string]map[string]int32{}
		for _, w := range workloads(t, all) {
			ports[w.name] = portsOf(t, w.pod)
			var listens []int32
			for _, arg := range w.pod.Containers[0].Args {
				if match := opens.FindStringSubmatch(arg); match != nil {
					listens = append(listens, number(t, match[1]))
				}
			}
			slices.Sort(listens)
			if diff := cmp.Diff(listens, slices.Sorted(maps.Values(ports[w.name]))); diff != "" {
				t.Errorf("ports that %s opens and names (-opens +names):\n%s", w.name, diff)
			}
			for _, container := range w.pod.Containers {
				for what, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
					if probe == nil || ports[w.name][probe.HTTPGet.Port.StrVal] == 0 {
						t.Errorf("the %s probe of %s asks no port of it", what, w.name)
					}
				}
			}
		}
		want := map[string][]string{"annex": {"https 443 to https"}, "annex-controller": {"https 443 to webhooks", "metrics 8080 to metrics"}}
		if ports["annex-etcd"] != nil {
			want["annex-etcd"] = []string{"client 2379 to client", "peer 2380 to peer", "metrics 2381 to metrics"}
		}
		got := map[string][]string{}
		for _, d := range all {
			if d.GetKind() != "Service" {
				continue
			}
			spec := decode[corev1.Service](t, d).Spec
			owner := selected(t, &metav1.LabelSelector{MatchLabels: spec.Selector}, all)[0]
			for _, port := range spec.Ports {
				got[d.GetName()] = append(got[d.GetName()], fmt.Sprintf("%s %d to %s", port.Name, port.Port, port.TargetPort.StrVal))
				if ports[owner][port.TargetPort.StrVal] == 0 {
					t.Errorf("port %s of Service %s leads to a port that %s does not have", port.Name, d.GetName(), owner)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ports of Services (-want +got):\n%s", diff)
		}
	})
}

// TestNetworkPolicies says who reaches which port of which pods, and whom etcd reaches.
func TestNetworkPolicies(t *testing.T) {
	want := map[string][]string{
		"annex-apiserver":  {"from anybody to https"},
		"annex-controller": {"from anybody to webhooks"},
	}
	withEtcd := map[string][]string{
		"annex-etcd": {"from annex-apiserver to client", "from annex-etcd to client", "from annex-etcd to peer", "to 53 of anybody", "to client of annex-etcd", "to peer of annex-etcd"},
	}
	maps.Copy(withEtcd, want)
	everything := map[string][]string{}
	for name, rules := range withEtcd {
		everything[name] = rules
		if name != "annex-apiserver" { // it asks everybody who he is
			everything[name] = append(slices.Clone(rules), "from namespace kubernetes.io/metadata.name=monitoring to metrics")
			slices.Sort(everything[name])
		}
	}
	wants := map[string]map[string][]string{
		"embedded": want, "external": want, "statefulset": withEtcd, "cert-manager": withEtcd, "existing": withEtcd, "everything": everything,
	}
	// These are for kubelets, which no policy keeps out, and for Prometheus where the values name it.
	others := map[string][]string{"annex-controller": {"health", "metrics"}, "annex-etcd": {"metrics"}}
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		got := map[string][]string{}
		for _, w := range workloads(t, all) {
			policy := decode[networkingv1.NetworkPolicy](t, find(t, all, "NetworkPolicy", w.name)).Spec
			ports := portsOf(t, w.pod)
			if !slices.Contains(policy.PolicyTypes, networkingv1.PolicyTypeIngress) || slices.Contains(policy.PolicyTypes, networkingv1.PolicyTypeEgress) != (len(policy.Egress) > 0) {
				t.Errorf("the policy of %s is for %v", w.name, policy.PolicyTypes)
			}
			reached := slices.Clone(others[w.name])
			for _, rule := range policy.Ingress {
				for _, port := range portNames(t, rule.Ports, ports) {
					reached = append(reached, port)
					got[w.name] = append(got[w.name], "from "+peers(t, rule.From, all)+" to "+port)
				}
			}
			for _, rule := range policy.Egress {
				for _, port := range portNames(t, rule.Ports, ports) {
					got[w.name] = append(got[w.name], "to "+port+" of "+peers(t, rule.To, all))
				}
			}
			for port := range ports {
				if !slices.Contains(reached, port) {
					t.Errorf("nobody reaches port %s of %s", port, w.name)
				}
			}
			slices.Sort(got[w.name])
			got[w.name] = slices.Compact(got[w.name])
		}
		if diff := cmp.Diff(wants[name], got); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
	})
	for _, d := range documents(t, render(t, "--set=networkPolicy.enabled=false")) {
		if d.GetKind() == "NetworkPolicy" {
			t.Errorf("%s %s is there although they are switched off", d.GetKind(), d.GetName())
		}
	}
}

// portNames are the ports of a rule. Names are those of the pods that have the
// policy: members of etcd, which reach each other, have the same ones.
func portNames(t *testing.T, rule []networkingv1.NetworkPolicyPort, ports map[string]int32) []string {
	t.Helper()
	if len(rule) == 0 {
		t.Error("a rule is for all ports")
	}
	var names []string
	for _, port := range rule {
		if port.Port == nil || port.EndPort != nil {
			t.Error("a rule is for more than one port")
			continue
		}
		if port.Port.Type == intstr.String && ports[port.Port.StrVal] == 0 {
			t.Errorf("the pods have no port %s", port.Port.StrVal)
		}
		names = append(names, port.Port.String())
	}
	return names
}

// peers says who is on the other side of a rule.
func peers(t *testing.T, rule []networkingv1.NetworkPolicyPeer, all []document) string {
	t.Helper()
	switch {
	case len(rule) == 0:
		return "anybody"
	case len(rule) == 1 && rule[0].PodSelector != nil && rule[0].NamespaceSelector == nil && rule[0].IPBlock == nil:
		if found := selected(t, rule[0].PodSelector, all); len(found) == 1 {
			return found[0]
		}
	case len(rule) == 1 && rule[0].PodSelector == nil && rule[0].NamespaceSelector != nil:
		return "namespace " + metav1.FormatLabelSelector(rule[0].NamespaceSelector)
	}
	t.Errorf("a rule is for %v", rule)
	return ""
}

// TestServiceMonitors says what Prometheus reads, of Services and ports that exist.
func TestServiceMonitors(t *testing.T) {
	want := map[string]string{"annex-apiserver": "https of annex by https", "annex-controller": "metrics of annex-controller", "annex-etcd": "metrics of annex-etcd"}
	tests := map[string][]document{
		"everything": world.sets["everything"],
		"by default": documents(t, render(t, "--set=monitoring.serviceMonitor.enabled=true")),
	}
	for name, all := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, d := range all {
				if d.GetKind() == "ServiceMonitor" {
					got[d.GetName()] = endpointOf(t, d, all)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is read (-want +got):\n%s", diff)
			}
		})
	}
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		for _, d := range all {
			if d.GetKind() == "ServiceMonitor" && name != "everything" {
				t.Errorf("%s is there although nobody asked for it", d.GetName())
			}
		}
	})
}

// endpointOf is the only endpoint of a ServiceMonitor.
func endpointOf(t *testing.T, d document, all []document) string {
	t.Helper()
	wanted, _, err := unstructured.NestedStringMap(d.Object, "spec", "selector", "matchLabels")
	if err != nil {
		t.Fatal(err)
	}
	endpoints, _, err := unstructured.NestedSlice(d.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("%d endpoints, want 1: %v", len(endpoints), err)
	}
	endpoint := endpoints[0].(map[string]any)
	text := ""
	for _, service := range all {
		if service.GetKind() != "Service" || !labels.SelectorFromSet(wanted).Matches(labels.Set(service.GetLabels())) {
			continue
		}
		if text != "" || service.GetNamespace() != d.GetNamespace() {
			t.Errorf("ServiceMonitor %s finds also Service %s/%s", d.GetName(), service.GetNamespace(), service.GetName())
		}
		for _, port := range decode[corev1.Service](t, service).Spec.Ports {
			if port.Name == endpoint["port"] {
				text = port.Name + " of " + service.GetName()
			}
		}
	}
	if endpoint["scheme"] != nil {
		text += fmt.Sprintf(" by %v", endpoint["scheme"])
		name, _, err := unstructured.NestedString(endpoint, "tlsConfig", "serverName")
		if want := "annex." + namespace + ".svc"; err != nil || name != want {
			t.Errorf("ServiceMonitor %s verifies the name %q, want %s: %v", d.GetName(), name, want, err)
		}
	}
	return text
}
