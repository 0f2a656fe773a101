// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/testutil"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := newWorld(t)
	w.metrics = NewMetrics()
	if err := w.metrics.Register(registry.Register); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.sync()
	w.pass(61 * 24 * time.Hour)
	w.sync()
	const want = `
# HELP annex_controller_certificate_expiration_timestamp_seconds When the certificate in a Secret that the controller issues expires, in seconds since 1970.
# TYPE annex_controller_certificate_expiration_timestamp_seconds gauge
annex_controller_certificate_expiration_timestamp_seconds{secret="annex-apiserver-tls"} 1.9065024e+09
annex_controller_certificate_expiration_timestamp_seconds{secret="annex-ca"} 1.924992e+09
annex_controller_certificate_expiration_timestamp_seconds{secret="annex-controller-tls"} 1.9065024e+09
# HELP annex_controller_certificate_failures_total Attempts to issue certificates or to write them into caBundles that failed. They are repeated.
# TYPE annex_controller_certificate_failures_total counter
annex_controller_certificate_failures_total 0
# HELP annex_controller_certificates_issued_total Certificates that this process has signed, by the Secret that holds them.
# TYPE annex_controller_certificates_issued_total counter
annex_controller_certificates_issued_total{secret="annex-apiserver-tls"} 2
annex_controller_certificates_issued_total{secret="annex-controller-tls"} 2
`
	var names []string
	for _, description := range MetricDescriptions() {
		names = append(names, description.Name)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
