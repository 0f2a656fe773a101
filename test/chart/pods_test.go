// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// decode reads a rendered object into its type.
func decode[T any](t *testing.T, d document) *T {
	t.Helper()
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, object); err != nil {
		t.Fatalf("%s %s: %v", d.GetKind(), d.GetName(), err)
	}
	return object
}

// workload is what runs as long as the release does.
type workload struct {
	name     string
	replicas int32
	selector *metav1.LabelSelector
	pod      *corev1.PodSpec
}

// workloads are those of a release, in the order of their templates.
func workloads(t *testing.T, all []document) []workload {
	t.Helper()
	var found []workload
	for _, d := range all {
		switch d.GetKind() {
		case "Deployment":
			spec := decode[appsv1.Deployment](t, d).Spec
			found = append(found, workload{d.GetName(), *spec.Replicas, spec.Selector, podOf(t, d)})
		case "StatefulSet":
			spec := decode[appsv1.StatefulSet](t, d).Spec
			found = append(found, workload{d.GetName(), *spec.Replicas, spec.Selector, podOf(t, d)})
		}
	}
	if len(found) < 2 {
		t.Fatalf("%d workloads found, want at least annex-apiserver and annex-controller", len(found))
	}
	return found
}

// selected names everything whose pods a selector finds, hooks included.
func selected(t *testing.T, selector *metav1.LabelSelector, all []document) []string {
	t.Helper()
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, d := range all {
		fields := map[string][]string{
			"Pod": {"metadata", "labels"}, "Deployment": {"spec", "template", "metadata", "labels"},
			"StatefulSet": {"spec", "template", "metadata", "labels"}, "Job": {"spec", "template", "metadata", "labels"},
		}[d.GetKind()]
		if fields == nil {
			continue
		}
		found, _, err := unstructured.NestedStringMap(d.Object, fields...)
		if err != nil {
			t.Fatal(err)
		}
		if matches.Matches(labels.Set(found)) {
			names = append(names, d.GetName())
		}
	}
	return names
}

// TestSelectorsFindTheirPods finds what counts, spreads, protects or reaches other
// pods than those it is named after.
func TestSelectorsFindTheirPods(t *testing.T) {
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		checked := 0
		check := func(what, owner string, selector *metav1.LabelSelector) {
			t.Helper()
			checked++
			if diff := cmp.Diff([]string{owner}, selected(t, selector, all)); diff != "" {
				t.Errorf("%s of %s finds other pods (-want +got):\n%s", what, owner, diff)
			}
		}
		for _, w := range workloads(t, all) {
			check("the selector", w.name, w.selector)
			for _, term := range antiAffinity(w.pod) {
				check("the anti-affinity", w.name, term.LabelSelector)
			}
			for _, constraint := range w.pod.TopologySpreadConstraints {
				check("the spread", w.name, constraint.LabelSelector)
			}
		}
		for _, d := range all {
			switch d.GetKind() {
			case "PodDisruptionBudget":
				check("the PodDisruptionBudget", d.GetName(), decode[policyv1.PodDisruptionBudget](t, d).Spec.Selector)
			case "NetworkPolicy":
				check("the NetworkPolicy", d.GetName(), &decode[networkingv1.NetworkPolicy](t, d).Spec.PodSelector)
			case "Service":
				owner := d.GetName()
				if owner == "annex" { // the name that APIServices have
					owner = "annex-apiserver"
				}
				check("the Service", owner, &metav1.LabelSelector{MatchLabels: decode[corev1.Service](t, d).Spec.Selector})
			}
		}
		if want := 6 * len(workloads(t, all)); checked < want {
			t.Errorf("%d selectors found, want at least %d", checked, want)
		}
	})
}

// antiAffinity returns the terms of a pod, required and preferred.
func antiAffinity(pod *corev1.PodSpec) []corev1.PodAffinityTerm {
	if pod.Affinity == nil || pod.Affinity.PodAntiAffinity == nil {
		return nil
	}
	terms := slices.Clone(pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	for _, preferred := range pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, preferred.PodAffinityTerm)
	}
	return terms
}

// TestPlaces says where pods go.
func TestPlaces(t *testing.T) {
	const (
		prefersNode, needsNode = "prefers a node of its own", "needs a node of its own"
		nodes, zones           = "spread over kubernetes.io/hostname", "spread over topology.kubernetes.io/zone"
	)
	usual := []string{prefersNode, zones, nodes}
	want := map[string]map[string][]string{
		"embedded":    {"annex-apiserver": usual, "annex-controller": usual},
		"external":    {"annex-apiserver": usual, "annex-controller": usual},
		"statefulset": {"annex-apiserver": usual, "annex-controller": usual, "annex-etcd": {needsNode, zones}},
		"everything": {
			"annex-apiserver":  {needsNode, zones, nodes},
			"annex-controller": {prefersNode, zones + " strictly"},
			"annex-etcd":       usual,
		},
	}
	want["cert-manager"], want["existing"] = want["statefulset"], want["statefulset"]
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		got := map[string][]string{}
		for _, w := range workloads(t, all) {
			for _, term := range w.pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				got[w.name] = append(got[w.name], "needs a "+nodeOf(term))
			}
			for _, term := range w.pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				got[w.name] = append(got[w.name], "prefers a "+nodeOf(term.PodAffinityTerm))
			}
			for _, constraint := range w.pod.TopologySpreadConstraints {
				text := "spread over " + constraint.TopologyKey
				if constraint.WhenUnsatisfiable == corev1.DoNotSchedule {
					text += " strictly"
				}
				got[w.name] = append(got[w.name], text)
			}
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("places (-want +got):\n%s", diff)
		}
	})
}

func nodeOf(term corev1.PodAffinityTerm) string {
	if term.TopologyKey == corev1.LabelHostname {
		return "node of its own"
	}
	return term.TopologyKey + " of its own"
}

// TestDisruptions says how many pods may be away: never so many that the rest
// cannot serve, and always one, so that a drain ends.
func TestDisruptions(t *testing.T) {
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		for _, w := range workloads(t, all) {
			spec := decode[policyv1.PodDisruptionBudget](t, find(t, all, "PodDisruptionBudget", w.name)).Spec
			if spec.MinAvailable != nil || ptr.Deref(spec.MaxUnavailable, intstr.FromInt32(0)) != intstr.FromInt32(1) {
				t.Errorf("%s may lack %v and needs %v, want one to be away at any number of replicas", w.name, spec.MaxUnavailable, spec.MinAvailable)
			}
			left, unhealthy := w.replicas-1, policyv1.AlwaysAllow
			if w.name == "annex-etcd" {
				unhealthy = policyv1.IfHealthyBudget // a member that is not ready may be needed for the majority
				if left <= w.replicas/2 {
					t.Errorf("%d of %d members are no majority", left, w.replicas)
				}
			}
			if got := ptr.Deref(spec.UnhealthyPodEvictionPolicy, ""); got != unhealthy {
				t.Errorf("pods of %s that are not ready: %s, want %s", w.name, got, unhealthy)
			}
			if d := slices.IndexFunc(all, func(d document) bool { return d.GetKind() == "Deployment" && d.GetName() == w.name }); d >= 0 {
				rolling := decode[appsv1.Deployment](t, all[d]).Spec.Strategy.RollingUpdate
				if *rolling.MaxUnavailable != intstr.FromInt32(0) || *rolling.MaxSurge != intstr.FromInt32(1) {
					t.Errorf("an upgrade of %s takes %v away and adds %v, want 0 and 1", w.name, rolling.MaxUnavailable, rolling.MaxSurge)
				}
			}
		}
	})
	off := "--set=%s.podDisruptionBudget.enabled=false"
	for _, d := range documents(t, render(t, fmt.Sprintf(off, "apiserver"), fmt.Sprintf(off, "controller"), fmt.Sprintf(off, "etcd.statefulset"))) {
		if d.GetKind() == "PodDisruptionBudget" {
			t.Errorf("%s %s is there although it is switched off", d.GetKind(), d.GetName())
		}
	}
}

// TestPriority says which pods go last, and that a cluster which restricts their class lets them in.
func TestPriority(t *testing.T) {
	tests := map[string]struct {
		args        []string
		class       string
		wantAllowed []string
	}{
		"by default":           {class: "system-cluster-critical", wantAllowed: []string{"system-cluster-critical"}},
		"another system class": {args: []string{"--set=priorityClass.name=system-node-critical"}, class: "system-node-critical", wantAllowed: []string{"system-node-critical"}},
		"a class of one's own": {args: []string{"--set=priorityClass.name=platform"}, class: "platform"},
		"no class":             {args: []string{"--set=priorityClass.name="}},
		"without a quota":      {args: []string{"--set=priorityClass.quota=false"}, class: "system-cluster-critical"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all := documents(t, render(t, test.args...))
			for _, w := range workloads(t, all) {
				if w.pod.PriorityClassName != test.class {
					t.Errorf("%s is of class %q, want %q", w.name, w.pod.PriorityClassName, test.class)
				}
			}
			var allowed []string
			for _, d := range all {
				if d.GetKind() == "ResourceQuota" {
					for _, expression := range decode[corev1.ResourceQuota](t, d).Spec.ScopeSelector.MatchExpressions {
						allowed = append(allowed, expression.Values...)
					}
				}
			}
			if diff := cmp.Diff(test.wantAllowed, allowed); diff != "" {
				t.Errorf("classes that a quota allows (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDrainFits sums up what a process does between the request to end and its
// end: kubelet kills it when the grace period is over.
func TestDrainFits(t *testing.T) {
	const (
		// longestRequest is --request-timeout of annex-apiserver.
		longestRequest = 60
		// longestStop is what the manager of annex-controller grants its parts (manager.Options.GracefulShutdownTimeout).
		longestStop = 30
		// longestHandOver is what a leader of etcd grants a change of the leader (config.ServerConfig.ReqTimeout).
		longestHandOver = 7
	)
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		for _, w := range workloads(t, all) {
			container := w.pod.Containers[0]
			var seconds int64
			if container.Lifecycle != nil {
				seconds = container.Lifecycle.PreStop.Sleep.Seconds
			}
			switch w.name {
			case "annex-apiserver":
				if seconds == 0 {
					t.Error("annex-apiserver ends before its address is forgotten")
				}
				seconds += secondsOf(t, container, "--shutdown-delay-duration=") + secondsOf(t, container, "--shutdown-watch-termination-grace-period=") + longestRequest
			case "annex-controller":
				if seconds == 0 {
					t.Error("annex-controller ends before its address is forgotten")
				}
				seconds += longestStop
			default:
				seconds += longestHandOver
			}
			if *w.pod.TerminationGracePeriodSeconds <= seconds {
				t.Errorf("pods of %s are killed after %d seconds, the drain takes up to %d", w.name, *w.pod.TerminationGracePeriodSeconds, seconds)
			}
		}
	})
}

// secondsOf is the value of a flag that is a time.
func secondsOf(t *testing.T, container corev1.Container, flag string) int64 {
	t.Helper()
	text := valueOf(container, flag)
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s%s: %v", flag, text, err)
	}
	return int64(duration / time.Second)
}

// valueOf is the value of a flag, given with its equals sign. It is empty without the flag.
func valueOf(container corev1.Container, flag string) string {
	for _, arg := range slices.Backward(container.Args) { // the last one counts
		if value, ok := strings.CutPrefix(arg, flag); ok {
			return value
		}
	}
	return ""
}

// number is a port of a command line.
func number(t *testing.T, text string) int32 {
	t.Helper()
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}
