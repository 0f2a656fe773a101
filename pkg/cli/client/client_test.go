// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// discovery answers as a server with a single resource, which has a short name.
func discovery(t *testing.T) string {
	t.Helper()
	answers := map[string]any{
		"/api": metav1.APIVersions{},
		"/apis": metav1.APIGroupList{Groups: []metav1.APIGroup{{
			Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "example.com/v1", Version: "v1"}},
			PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "example.com/v1", Version: "v1"},
		}}},
		"/apis/example.com/v1": metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", SingularName: "widget", Kind: "Widget", ShortNames: []string{"wd"}, Namespaced: true, Verbs: metav1.Verbs{"list"}},
		}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// factoryOf is that of the plugin, with flags and a kubeconfig whose context has the namespace prod.
func factoryOf(t *testing.T, args ...string) Factory {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("KUBECACHEDIR", filepath.Join(dir, "cache"))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a", "namespace": "prod"}}],
		"clusters": [{"name": "a", "cluster": {"server": %q}}]}`, discovery(t))
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir = nil
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(set)
	if err := set.Parse(append([]string{"--kubeconfig", kubeconfig}, args...)); err != nil {
		t.Fatal(err)
	}
	return NewFactory(flags, io.Discard)
}

func TestMapper(t *testing.T) {
	mapper, err := factoryOf(t).Mapper()
	if err != nil {
		t.Fatal(err)
	}
	got, err := mapper.KindFor(schema.GroupVersionResource{Resource: "wd"})
	if want := (schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		args          []string
		wantNamespace string
		wantByFlag    bool
	}{
		"of the context": {nil, "prod", false},
		"of the flag":    {[]string{"-n", "test"}, "test", true},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, byFlag, err := factoryOf(t, test.args...).Namespace()
			if err != nil || namespace != test.wantNamespace || byFlag != test.wantByFlag {
				t.Errorf("got %q, %v, %v, want %q, %v", namespace, byFlag, err, test.wantNamespace, test.wantByFlag)
			}
		})
	}
}

func TestUnreadableKubeconfig(t *testing.T) {
	factory := factoryOf(t, "--context", "unknown")
	_, mapperErr := factory.Mapper()
	_, _, namespaceErr := factory.Namespace()
	for name, err := range map[string]error{"mapper": mapperErr, "namespace": namespaceErr} {
		if err == nil || !strings.HasPrefix(err.Error(), "reading the kubeconfig: ") {
			t.Errorf("%s: got %v, want an error about the kubeconfig", name, err)
		}
	}
}
