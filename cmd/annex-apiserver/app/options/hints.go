// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// certificateHints are the authorities that the port names when it asks a client for
// its certificate. It names none before all are known: a client sends whatever
// certificate it has then, while one that sees some names and misses its own sends
// none, and would stay anonymous as long as it keeps the connection.
//
// Whom the server believes does not depend on it.
type certificateHints struct {
	dynamiccertificates.CAContentProvider

	known func() error
	// listeners are all added before the server has started, as those of upstream's providers are.
	listeners []dynamiccertificates.Listener
}

var (
	_ dynamiccertificates.CAContentProvider = &certificateHints{}
	_ dynamiccertificates.ControllerRunner  = &certificateHints{}
)

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (h *certificateHints) CurrentCABundleContent() []byte {
	if h.known() != nil {
		return nil
	}
	return h.CAContentProvider.CurrentCABundleContent()
}

// AddListener implements dynamiccertificates.CAContentProvider.
func (h *certificateHints) AddListener(listener dynamiccertificates.Listener) {
	h.listeners = append(h.listeners, listener)
	h.CAContentProvider.AddListener(listener)
}

// enqueue tells the listeners that the authorities are known.
func (h *certificateHints) enqueue() {
	for _, listener := range h.listeners {
		listener.Enqueue()
	}
}

// RunOnce implements dynamiccertificates.ControllerRunner.
func (h *certificateHints) RunOnce(ctx context.Context) error {
	if runner, ok := h.CAContentProvider.(dynamiccertificates.ControllerRunner); ok {
		return runner.RunOnce(ctx)
	}
	return nil
}

// Run implements dynamiccertificates.ControllerRunner.
func (h *certificateHints) Run(ctx context.Context, workers int) {
	if runner, ok := h.CAContentProvider.(dynamiccertificates.ControllerRunner); ok {
		runner.Run(ctx, workers)
	}
}
