// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// TestAdmissionPlugins compares with k8s.io/kubernetes pkg/kubeapiserver/options/plugins.go.
func TestAdmissionPlugins(t *testing.T) {
	usual := []string{
		"NamespaceLifecycle", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
	}
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"by default": {want: usual},
		"with owners": {
			args: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
			want: slices.Insert(slices.Clone(usual), 1, "OwnerReferencesPermissionEnforcement"),
		},
		"without quotas": {args: []string{"--disable-admission-plugins=ResourceQuota"}, want: usual[:5]},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			sections := o.Flags()
			if err := sections.FlagSet("admission").Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			completed := CompletedOptions{&completedOptions{o}}
			if errs := o.Admission.Validate(); len(errs) != 0 {
				t.Fatal(errs)
			}
			var got []string
			for _, plugin := range o.Admission.RecommendedPluginOrder {
				if completed.admits(plugin) {
					got = append(got, plugin)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plug-ins (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFallBackToLimits switches between two chains, of which one has no fairness.
func TestFallBackToLimits(t *testing.T) {
	config := &genericapiserver.Config{FlowControl: struct{ flowcontrol.Interface }{}}
	build := func(_ http.Handler, config *genericapiserver.Config) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if config.FlowControl == nil {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
	}
	limited := false
	chain := withLimits(build, func() bool { return limited })(http.NotFoundHandler(), config)
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusOK} {
		limited = want == http.StatusTooManyRequests
		recorder := httptest.NewRecorder()
		chain.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
		if recorder.Code != want {
			t.Errorf("status %d, want %d", recorder.Code, want)
		}
	}
	if config.FlowControl == nil {
		t.Error("the configuration has lost its flow control")
	}
}
