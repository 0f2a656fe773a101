// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
)

func TestClient(t *testing.T) {
	long := strings.Repeat("x", 500)
	tests := map[string]struct{ agent, want, wantVersion string }{
		"none":                          {"", "", ""},
		"a component":                   {"kubelet/v1.37.2 (linux/amd64) kubernetes/abc123", "kubelet", "v1.37.2"},
		"a controller of a component":   {"kube-controller-manager/v1.37.2 (linux/amd64) kubernetes/abc123/generic-garbage-collector", "kube-controller-manager", "v1.37.2"},
		"a version with a suffix":       {"kubectl/v1.37.2-gke.1234+deadbeef (darwin/arm64) kubernetes/abc", "kubectl", "v1.37.2-gke.1234+deadbeef"},
		"a controller of users":         {"argo-workflow-controller/v3.6.2 argo-workflows/v3.6.2", "argo-workflow-controller", "v3.6.2"},
		"a library":                     {"Go-http-client/2.0", "Go-http-client", "2.0"},
		"a version with a language":     {"OpenAPI-Generator/29.0.0/python", "OpenAPI-Generator", "29.0.0"},
		"a browser":                     {"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "Mozilla", "5.0"},
		"a host after the version":      {"agent/v2 node-17.example.com", "agent", "v2"},
		"a host after a comma":          {"agent/v2,node-17.example.com", "agent", "v2"},
		"a name of two words":           {"Argo Workflows/3.5 (linux)", "Argo Workflows", "3.5"},
		"no version":                    {"my agent (linux/amd64)", "my agent", ""},
		"a version without a slash":     {"my agent v1.2 (linux/amd64)", "my agent", "v1.2"},
		"a number without a slash":      {"agent 2", "agent", "2"},
		"only a version":                {"v1.2", "v1.2", ""},
		"a word that begins as one":     {"agent very", "agent very", ""},
		"no name":                       {"/v1.2", "/v1.2", ""},
		"only a comment":                {"(linux/amd64)", "", ""},
		"the name of the others":        {"(others)", "", ""},
		"that name after another":       {"x(others)/1", "x", ""},
		"an absolute path":              {"/usr/bin/agent", "/usr/bin/agent", ""},
		"line breaks cannot be printed": {"agent\r\n/v1\x1b[31m", "agent", "v1?[31m"},
		"line breaks in the name":       {"a\r\nb/v1", "a??b", "v1"},
		"letters of other languages":    {"агент/1", "агент", "1"},
		"no valid text":                 {"agent\xff/1", "agent?", "1"},
		"too long":                      {long + "/1", long[:61] + "...", "1"},
		"too long a version":            {"agent/" + long, "agent", long[:29] + "..."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, version := clientOf(tc.agent)
			if got != tc.want || version != tc.wantVersion {
				t.Errorf("got %q and %q, want %q and %q", got, version, tc.want, tc.wantVersion)
			}
		})
	}
}

func TestUser(t *testing.T) {
	account := "system:serviceaccount:" + strings.Repeat("n", 63) + ":" + strings.Repeat("a", 253)
	tests := map[string]struct {
		user   string
		groups []string
		want   string
	}{
		"a node":                      {"system:node:node-17.example.com", []string{"system:authenticated", "system:nodes"}, "system:node:*"},
		"who is only named so":        {"system:node:node-17", []string{"system:authenticated"}, "system:node:node-17"},
		"who is only with the nodes":  {"alice", []string{"system:nodes"}, "alice"},
		"the longest service account": {account, []string{"system:serviceaccounts"}, account},
		"longer than any":             {account + "x", nil, account[:len(account)-3] + "..."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := userOf(&user.DefaultInfo{Name: tc.user, Groups: tc.groups}); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzBounded(f *testing.F) {
	for _, text := range []string{"", "kubelet/v1.37.2", strings.Repeat("ä", 100), strings.Repeat("\xff", 100), "a\x00b", strings.Repeat("\U0001F600", 30)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := bounded(text, maxClient)
		if len(got) > maxClient || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\n\r\t\x1b") {
			t.Errorf("%q became %q", text, got)
		}
		if bounded(got, maxClient) != got {
			t.Errorf("%q became %q, and then %q", text, got, bounded(got, maxClient))
		}
	})
}
