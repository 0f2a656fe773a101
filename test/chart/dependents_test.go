// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDependents says what annex-controller searches: everything, at which a release stops that may not
// list something, until somebody says that what the chart knows is all.
func TestDependents(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"every group": {},
		"every group, and dependents": {
			args: []string{"--set-json=rbac.dependents=[{\"apiGroups\":[\"\"],\"resources\":[\"pods\"]}]"},
		},
		"every group beside a named one": {
			args: []string{"--set=rbac.adoptedGroups={argoproj.io,*}"},
		},
		"every group, and all dependents": {
			args: []string{"--set=rbac.dependentsComplete=true"},
		},
		"named groups": {
			args: []string{"--set=rbac.adoptedGroups={argoproj.io,wgpolicyk8s.io}"},
		},
		"named groups and some dependents": {
			args: []string{"--set=rbac.adoptedGroups={argoproj.io}", "--set-json=rbac.dependents=[{\"apiGroups\":[\"\"],\"resources\":[\"pods\"]}]"},
		},
		"named groups that own nothing else": {
			args: []string{"--set=rbac.adoptedGroups={argoproj.io,wgpolicyk8s.io}", "--set=rbac.dependentsComplete=true"},
			want: "argoproj.io/*,wgpolicyk8s.io/*",
		},
		"named groups and all dependents": {
			args: []string{
				"--set=rbac.adoptedGroups={argoproj.io}", "--set=rbac.dependentsComplete=true",
				"--set-json=rbac.dependents=[{\"apiGroups\":[\"\",\"apps\"],\"resources\":[\"pods\",\"deployments\"]},{\"apiGroups\":[\"batch\",\"argoproj.io\"],\"resources\":[\"*\"]}]",
			},
			want: "argoproj.io/*,/pods,/deployments,apps/pods,apps/deployments,batch/*",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			container := containerOf(t, documents(t, render(t, test.args...)), "annex-controller")
			if diff := cmp.Diff(test.want, valueOf(container, "--dependents=")); diff != "" {
				t.Errorf("--dependents (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBadDependents refuses what the controller would not start with.
func TestBadDependents(t *testing.T) {
	tests := map[string]struct {
		rule, want string
	}{
		"a subresource":     {rule: `{"apiGroups":[""],"resources":["pods/status"]}`, want: "at '/rbac/dependents/0/resources/0'"},
		"no resource":       {rule: `{"apiGroups":[""],"resources":[""]}`, want: "at '/rbac/dependents/0/resources/0'"},
		"a kind":            {rule: `{"apiGroups":[""],"resources":["ConfigMap"]}`, want: "at '/rbac/dependents/0/resources/0'"},
		"a group's version": {rule: `{"apiGroups":["apps/v1"],"resources":["deployments"]}`, want: "at '/rbac/dependents/0/apiGroups/0'"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, stderr, err := helm(t, "template", "annex", chart(t), "--namespace="+namespace, "--set-json=rbac.dependents=["+test.rule+"]")
			if err == nil || !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "does not match pattern") {
				t.Errorf("error %v, helm says\n%s\nwithout %q", err, stderr, test.want)
			}
		})
	}
}
