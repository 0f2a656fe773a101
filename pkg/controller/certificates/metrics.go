// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MetricDescription tells what one metric means, for the reference page.
type MetricDescription struct {
	// Name and Labels identify its series.
	Name   string
	Labels []string
	// Kind is gauge or counter.
	Kind string
	// Help is one sentence.
	Help string
}

func expirationDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_controller_certificate_expiration_timestamp_seconds", Labels: []string{"secret"}, Kind: "gauge",
		Help: "When the certificate in a Secret that the controller issues expires, in seconds since 1970.",
	}
}

func issuedDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_controller_certificates_issued_total", Labels: []string{"secret"}, Kind: "counter",
		Help: "Certificates that this process has signed, by the Secret that holds them.",
	}
}

func failuresDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_controller_certificate_failures_total", Kind: "counter",
		Help: "Attempts to issue certificates or to write them into caBundles that failed. They are repeated.",
	}
}

// MetricDescriptions describes all metrics of certificates.
func MetricDescriptions() []MetricDescription {
	return []MetricDescription{expirationDescription(), issuedDescription(), failuresDescription()}
}

// Metrics tell about the certificates. Only the controller that leads fills them. A
// nil Metrics counts nothing.
type Metrics struct {
	expiration *prometheus.GaugeVec
	all        *prometheus.CounterVec
	failures   prometheus.Counter
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	expiration, issued, failures := expirationDescription(), issuedDescription(), failuresDescription()
	return &Metrics{
		expiration: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: expiration.Name, Help: expiration.Help}, expiration.Labels),
		all:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: issued.Name, Help: issued.Help}, issued.Labels),
		failures:   prometheus.NewCounter(prometheus.CounterOpts{Name: failures.Name, Help: failures.Help}),
	}
}

// Register publishes the metrics, once in a process: register is that of the registry behind /metrics.
func (m *Metrics) Register(register func(prometheus.Collector) error) error {
	for _, collector := range []prometheus.Collector{m.expiration, m.all, m.failures} {
		if err := register(collector); err != nil {
			return fmt.Errorf("registering the metrics of certificates: %w", err)
		}
	}
	return nil
}

func (m *Metrics) expires(secret string, at time.Time) {
	if m != nil {
		m.expiration.WithLabelValues(secret).Set(float64(at.Unix()))
	}
}

func (m *Metrics) issued(secret string) {
	if m != nil {
		m.all.WithLabelValues(secret).Inc()
	}
}

func (m *Metrics) failed() {
	if m != nil {
		m.failures.Inc()
	}
}
