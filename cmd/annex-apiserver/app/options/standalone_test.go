// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// completedFor returns options with a free port.
func completedFor(t *testing.T, root string, change func(*Options)) CompletedOptions {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	o := NewOptions()
	o.Standalone.RootDir = root
	o.SecureServing.Listener = listener
	change(o)
	completed, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return completed
}

// webhookFile is a kubeconfig of a service at which nothing listens.
func webhookFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "webhook")
	if err := env.WriteKubeconfig(file, &rest.Config{Host: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNeverOpenByAccident goes through the combinations of the flags that a standalone
// server's authorization may depend on, by mistake too. Without an answer of a webhook that says
// yes, nobody but the privileged group may do anything but ask health checks.
func TestNeverOpenByAccident(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("secret,ann,1,\"readers\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, authority := newCA(t, "clients")
	kubeconfig, root := webhookFile(t), t.TempDir() // with the same credentials for all
	flags := [][]string{
		{"--token-auth-file=" + tokens, "--client-ca-file=" + authority},
		{"--authentication-token-webhook-config-file=" + kubeconfig, "--anonymous-auth=false"},
		{"--authorization-always-allow-paths="},
		{"--authorization-always-allow-paths=/metrics*"},
	}
	for combination := range 1 << len(flags) {
		var given []string
		for i, some := range flags {
			if combination&(1<<i) != 0 {
				given = append(given, some...)
			}
		}
		decides := authorizerFor(t, root, append(given, "--standalone")...)
		checkClosed(t, strings.Join(given, " "), decides)
	}
}

// authorizerFor is what a server with flags decides by.
func authorizerFor(t *testing.T, root string, args ...string) authorizer.Authorizer {
	t.Helper()
	completed := completedFor(t, root, func(o *Options) {
		sections := o.Flags()
		for _, arg := range args {
			name, value, given := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !given {
				value = "true"
			}
			for _, section := range sections.FlagSets {
				if section.Lookup(name) == nil {
					continue
				}
				if err := section.Set(name, value); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if errs := completed.Validate(); len(errs) != 0 {
		t.Fatal(errs)
	}
	config, err := completed.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config.GenericConfig.Authorization.Authorizer
}

func checkClosed(t *testing.T, flags string, decides authorizer.Authorizer) {
	t.Helper()
	people := []user.DefaultInfo{
		{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
		{Name: "ann", Groups: []string{"readers", "system:authenticated"}},
		{Name: "system:masters", Groups: []string{"system:authenticated"}},
		{Name: "system:serviceaccount:annex-system:annex-controller", Groups: []string{"system:serviceaccounts", "system:authenticated"}},
		{Name: ""},
	}
	asked := []authorizer.AttributesRecord{
		{Verb: "get", Path: "/debug/pprof"},
		{Verb: "get", Path: "/"},
		{Verb: "get", Path: "/readyzes"},
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", ""} {
		asked = append(asked,
			authorizer.AttributesRecord{Verb: verb, APIGroup: "lab.test", APIVersion: "v1", Resource: "gadgets", Path: "/readyz", ResourceRequest: true},
			authorizer.AttributesRecord{Verb: verb, APIGroup: "apiextensions.k8s.io", APIVersion: "v1", Resource: "customresourcedefinitions", Path: "/metrics", ResourceRequest: true})
	}
	for i := range people {
		for _, attributes := range asked {
			attributes.User = &people[i]
			if decision, _, err := decides.Authorize(t.Context(), attributes); decision == authorizer.DecisionAllow || err != nil {
				t.Errorf("%s: %s may %s %s%s: %v", flags, people[i].Name, attributes.Verb, attributes.Path, attributes.Resource, err)
			}
		}
	}
	attributes := slices.Clone(asked)[0]
	attributes.User = &user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}
	if decision, _, err := decides.Authorize(t.Context(), attributes); decision != authorizer.DecisionAllow {
		t.Errorf("%s: the privileged group may not do what it asks: %v", flags, err)
	}
}

// TestSilentAuthorizationWebhook: a webhook that does not answer allows nothing.
func TestSilentAuthorizationWebhook(t *testing.T) {
	decides := authorizerFor(t, t.TempDir(), "--standalone", "--authorization-webhook-config-file="+webhookFile(t))
	decision, _, err := decides.Authorize(t.Context(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "ann"}, Verb: "list", APIGroup: "lab.test", Resource: "gadgets", ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("got decision %v and error %v", decision, err)
	}
}
