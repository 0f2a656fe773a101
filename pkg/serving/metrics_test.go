// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

func TestRefusalsAreCounted(t *testing.T) {
	counts := NewMetrics()
	registry := metrics.NewKubeRegistry()
	if err := counts.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	gate := NewGate(counts)
	serve(t, gate, "get", "whatever.test", "somebody", ok)
	gate.hasSynced = func() bool { return true }
	gate.set(lab, readOnly)
	serve(t, gate, "get", lab, "somebody", ok)
	serveWith(t, gate, "get", "anything.test", "somebody", proxied("somebody"), ok)
	serve(t, gate, "create", lab, "somebody", ok)
	serve(t, gate, "delete", lab, "somebody", ok)
	distrust := WithTrust(http.HandlerFunc(ok), func() error { return &TrustError{Reason: errors.New("not read"), Metrics: counts} }, codecs())
	for _, path := range []string{"/apis/lab.test/v1/gadgets", "/metrics", "/readyz"} { // the last is let through
		distrust.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	}
	want := "# HELP " + RefusedName + " [ALPHA] " + RefusedHelp + "\n# TYPE " + RefusedName + " counter\n" +
		RefusedName + `{group="",mode="Starting"} 1` + "\n" +
		RefusedName + `{group="",mode="Unknown"} 1` + "\n" +
		RefusedName + `{group="",mode="Untrusting"} 2` + "\n" +
		RefusedName + `{group="lab.test",mode="ReadOnly"} 2` + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), RefusedName); err != nil {
		t.Error(err)
	}
}
