// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestImage says which image is run: the one of the release, whatever it is.
func TestImage(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart(t), "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(content, &about); err != nil {
		t.Fatal(err)
	}
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	tests := map[string]struct {
		args []string
		want string
	}{
		"the version of the chart": {want: "ghcr.io/kubeannex/annex:" + about.AppVersion},
		"a tag":                    {args: []string{"--set=image.tag=v9.9.9"}, want: "ghcr.io/kubeannex/annex:v9.9.9"},
		"another registry":         {args: []string{"--set=image.repository=registry.example.com:5000/annex"}, want: "registry.example.com:5000/annex:" + about.AppVersion},
		"a digest beside a tag":    {args: []string{"--set=image.tag=v9.9.9", "--set=image.digest=" + digest}, want: "ghcr.io/kubeannex/annex@" + digest},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, d := range documents(t, render(t, test.args...)) {
				pod := podOf(t, d)
				if pod == nil {
					continue
				}
				for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
					if container.Name != "etcd" && container.Image != test.want {
						t.Errorf("container %s of %s runs %s, want %s", container.Name, d.GetName(), container.Image, test.want)
					}
				}
				label, _, err := unstructured.NestedString(d.Object, "metadata", "labels", "app.kubernetes.io/version")
				if err != nil || label != about.AppVersion {
					t.Errorf("%s is labelled %s, want %s", d.GetName(), label, about.AppVersion)
				}
			}
		})
	}
}

// TestFlagsExist asks the programs themselves about every flag that they are started with.
func TestFlagsExist(t *testing.T) {
	programs := map[string]string{
		"/usr/local/bin/annex-apiserver":  "_output/bin/annex-apiserver",
		"/usr/local/bin/annex-controller": "_output/bin/annex-controller",
		"/usr/local/bin/kubectl-annex":    "_output/bin/kubectl-annex",
		"/usr/local/bin/etcd":             "_output/kubernetes/etcd",
	}
	helps := map[string]string{}
	help := func(program, subcommand string) string {
		if programs[program] == "" {
			t.Fatalf("%s is not a program of the images", program)
		}
		args := []string{"--help"}
		if subcommand != "" {
			args = []string{subcommand, "--help"}
		}
		if helps[program+subcommand] == "" {
			output, err := exec.CommandContext(t.Context(), path(t, programs[program]), args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s %v: %v: run make build kubernetes", programs[program], args, err)
			}
			helps[program+subcommand] = string(output)
		}
		return helps[program+subcommand]
	}
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		for _, d := range all {
			pod := podOf(t, d)
			if pod == nil {
				continue
			}
			for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
				if len(container.Command) != 1 {
					t.Fatalf("container %s is started by %v", container.Name, container.Command)
				}
				args, subcommand := container.Args, ""
				if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
					args, subcommand = args[1:], args[0]
				}
				text := help(container.Command[0], subcommand)
				for _, arg := range args {
					flag, _, _ := strings.Cut(arg, "=")
					if !regexp.MustCompile(`(^|\s)` + flag + `([\s=,]|$)`).MatchString(text) {
						t.Errorf("%s %s has no flag %s", container.Command[0], subcommand, flag)
					}
				}
			}
		}
	})
}

// TestAdmittedRequests says whom annex-apiserver lets in and by which plug-ins it
// admits objects, with the values that follow the flags of the kube-apiserver.
func TestAdmittedRequests(t *testing.T) {
	tests := map[string]struct {
		args                       []string
		wantAnonymous, wantPlugins string
	}{
		"by default":              {wantAnonymous: "false"},
		"with anonymous requests": {args: []string{"--set=apiserver.anonymousAuth=true"}, wantAnonymous: "true"},
		// As an upgrade with --reuse-values has it.
		"with values of an earlier chart": {args: []string{"--set=apiserver.anonymousAuth=null", "--set=apiserver.enableAdmissionPlugins=null"}, wantAnonymous: "false"},
		"with more plug-ins": {
			args:          []string{"--set=apiserver.enableAdmissionPlugins={OwnerReferencesPermissionEnforcement,ResourceQuota}"},
			wantAnonymous: "false", wantPlugins: "OwnerReferencesPermissionEnforcement,ResourceQuota",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			container := containerOf(t, documents(t, render(t, test.args...)), "annex-apiserver")
			if got := valueOf(container, "--anonymous-auth="); got != test.wantAnonymous {
				t.Errorf("--anonymous-auth=%s, want %s", got, test.wantAnonymous)
			}
			if got := valueOf(container, "--enable-admission-plugins="); got != test.wantPlugins {
				t.Errorf("--enable-admission-plugins=%s, want %q", got, test.wantPlugins)
			}
		})
	}
}

// TestPluginsExist compares the plug-ins that the values may name with those of annex-apiserver.
func TestPluginsExist(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), path(t, "_output/bin/annex-apiserver"), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("annex-apiserver --help: %v: run make build", err)
	}
	match := regexp.MustCompile(`Comma-delimited list of admission plugins: ([\w, ]+)\.`).FindStringSubmatch(strings.Join(strings.Fields(string(output)), " "))
	if match == nil {
		t.Fatal("annex-apiserver --help names no admission plug-ins")
	}
	content, err := os.ReadFile(filepath.Join(chart(t), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := json.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	named, _, err := unstructured.NestedStringSlice(values, "properties", "apiserver", "properties", "enableAdmissionPlugins", "items", "enum")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(match[1], ", "), named); diff != "" {
		t.Errorf("plug-ins (-annex-apiserver +values.schema.json):\n%s", diff)
	}
}

// TestAddresses finds what would listen on more than the pod's own address.
func TestAddresses(t *testing.T) {
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		listens := regexp.MustCompile(`^--(.*bind-address|listen-.*urls)=(.*)$`)
		count := 0
		for _, d := range all {
			pod := podOf(t, d)
			if pod == nil {
				continue
			}
			for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
				for _, arg := range container.Args {
					if match := listens.FindStringSubmatch(arg); match != nil {
						count++
						if !strings.Contains(match[2], "$(POD_IP)") {
							t.Errorf("%s of %s", arg, d.GetName())
						}
					}
				}
			}
		}
		if count < 4 {
			t.Errorf("%d addresses found, want at least one of annex-apiserver and three of annex-controller", count)
		}
	})
	ipv6 := find(t, documents(t, render(t, "--set=ipFamily=IPv6")), "Deployment", "annex-controller")
	if args := podOf(t, ipv6).Containers[0].Args; !slices.Contains(args, "--metrics-bind-address=[$(POD_IP)]:8080") {
		t.Errorf("annex-controller listens on %v", args)
	}
}

// TestMemoryLimit says what Go is told of the limit.
func TestMemoryLimit(t *testing.T) {
	tests := map[string]struct{ limit, want string }{
		"binary unit":   {"4Gi", "3865470566"},
		"fraction":      {"1.5Gi", "1449551462"},
		"decimal unit":  {"2G", "1800000000"},
		"no unit":       {"1073741824", "966367641"},
		"with no limit": {"null", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all := documents(t, render(t, "--set=apiserver.resources.limits.memory="+test.limit))
			var got string
			for _, variable := range podOf(t, find(t, all, "Deployment", "annex-apiserver")).Containers[0].Env {
				if variable.Name == "GOMEMLIMIT" {
					got = variable.Value
				}
			}
			if got != test.want {
				t.Errorf("GOMEMLIMIT is %q, want %q", got, test.want)
			}
		})
	}
}

// TestNumbersStayNumbers finds the floating point form that large values easily get.
func TestNumbersStayNumbers(t *testing.T) {
	for mode, flag := range map[string]string{"embedded": "--embedded-etcd-quota-bytes=8589934592", "statefulset": "--quota-backend-bytes=8589934592"} {
		if text := render(t, "--set=etcd.mode="+mode); !strings.Contains(text, flag) {
			t.Errorf("%s is missing with etcd %s", flag, mode)
		}
	}
}

// TestSelectorsAreImmutable holds the labels by which pods are found free of what
// changes: an upgrade could not change them.
func TestSelectorsAreImmutable(t *testing.T) {
	upgraded := "--set-json=commonLabels={\"team\":\"b\"}"
	before, after := documents(t, render(t)), documents(t, render(t, upgraded))
	for _, name := range []struct{ kind, name string }{{"Deployment", "annex-apiserver"}, {"Deployment", "annex-controller"}, {"StatefulSet", "annex-etcd"}} {
		old, _, _ := unstructured.NestedFieldNoCopy(find(t, before, name.kind, name.name).Object, "spec", "selector")
		changed, _, _ := unstructured.NestedFieldNoCopy(find(t, after, name.kind, name.name).Object, "spec", "selector")
		if diff := cmp.Diff(old, changed); diff != "" || old == nil {
			t.Errorf("selector of %s changes:\n%s", name.name, diff)
		}
	}
}

// TestSecretsAreMountedSparingly says which Secrets each part sees.
func TestSecretsAreMountedSparingly(t *testing.T) {
	tests := map[string]map[string][]string{
		"embedded":     {"annex-apiserver": {"annex-apiserver-tls"}, "annex-controller": nil},
		"statefulset":  {"annex-apiserver": {"annex-apiserver-tls", "annex-etcd-client-tls"}, "annex-controller": nil, "annex-etcd": {"annex-etcd-server-tls", "annex-etcd-peer-tls"}},
		"external":     {"annex-apiserver": {"annex-apiserver-tls", "my-etcd-client"}, "annex-controller": nil},
		"cert-manager": {"annex-apiserver": {"annex-apiserver-tls", "annex-etcd-client-tls"}, "annex-controller": {"annex-apiserver-tls/ca.crt", "annex-controller-tls"}, "annex-etcd": {"annex-etcd-server-tls", "annex-etcd-peer-tls"}},
		"existing":     {"annex-apiserver": {"my-annex-certificate", "annex-etcd-client-tls"}, "annex-controller": {"my-annex-certificate/ca.crt", "annex-controller-tls"}, "annex-etcd": {"annex-etcd-server-tls", "annex-etcd-peer-tls"}},
	}
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		if tests[name] == nil {
			return
		}
		got := map[string][]string{}
		for _, d := range all {
			if pod := podOf(t, d); pod != nil && d.GetKind() != "Pod" && d.GetKind() != "Job" {
				got[d.GetName()] = mounted(pod)
			}
		}
		if diff := cmp.Diff(tests[name], got); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
	})
}

// mounted returns the Secrets of a pod's volumes, with the key if it is one only.
func mounted(pod *corev1.PodSpec) []string {
	var names []string
	for _, volume := range pod.Volumes {
		if volume.Secret == nil {
			continue
		}
		name := volume.Secret.SecretName
		for _, item := range volume.Secret.Items {
			name += "/" + item.Key
		}
		names = append(names, name)
	}
	return names
}

// TestFlagsOfEtcd refuses what would undo what the chart or etcd-seed makes: every
// flag that it is started with, and those that move or join the data elsewhere.
func TestFlagsOfEtcd(t *testing.T) {
	const set = "--set=etcd.statefulset.extraArgs={%s}"
	refuse := func(flag string) {
		t.Helper()
		want := "etcd.statefulset.extraArgs has " + flag + "=x, which the chart itself decides: leave it out"
		_, stderr, err := helm(t, "template", "annex", chart(t), "--namespace="+namespace, fmt.Sprintf(set, "--heartbeat-interval=200,"+flag+"=x"))
		if err == nil || !strings.Contains(stderr, want) || strings.Count(strings.TrimSpace(stderr), "\n") > 2 {
			t.Errorf("helm says to %s: %v\n%s\nwithout %q", flag, err, stderr, want)
		}
	}
	var own []string
	for _, arg := range containerOf(t, world.sets["statefulset"], "annex-etcd").Args {
		flag, _, _ := strings.Cut(arg, "=")
		own = append(own, flag)
	}
	if len(own) < 20 {
		t.Errorf("etcd is started with %v", own)
	}
	for _, flag := range slices.Concat(own, []string{"--wal-dir", "--config-file", "--force-new-cluster", "--discovery", "--discovery-srv", "--listen-client-http-urls"}) {
		refuse(flag)
	}
	for _, flag := range []string{"--heartbeat-interval=200", "--initial-election-tick-advance=false", "--log-level=debug"} {
		args := containerOf(t, documents(t, render(t, fmt.Sprintf(set, flag))), "annex-etcd").Args
		if args[len(args)-1] != flag {
			t.Errorf("etcd is started with %v, want %s at the end", args, flag)
		}
	}
}
