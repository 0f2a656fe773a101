// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeannex/annex/test/env/ports"
)

// ConversionWebhook converts morphs between their versions. It runs in the test
// process and can be stopped and started again at the same address.
type ConversionWebhook struct {
	ca      *CA
	address string
	tls     *tls.Config

	mu       sync.Mutex
	server   *http.Server
	requests int
}

// StartConversionWebhook starts the webhook; the environment stops it.
func (e *Env) StartConversionWebhook() (*ConversionWebhook, error) {
	ca, err := NewCA("annex-test-webhook-ca")
	if err != nil {
		return nil, err
	}
	serving, err := ca.Serving()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the webhook: %w", err)
	}
	port, err := e.ports.Take()
	if err != nil {
		return nil, err
	}
	w := &ConversionWebhook{
		ca:      ca,
		address: ports.Address(port),
		tls:     &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	e.closeWith(w)
	return w, w.Start()
}

// URL is the address for the CRD.
func (w *ConversionWebhook) URL() string { return "https://" + w.address + "/convert" }

// CA is the authority for the CRD, as PEM.
func (w *ConversionWebhook) CA() []byte { return w.ca.PEM() }

// Requests counts the conversion reviews that were answered.
func (w *ConversionWebhook) Requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

// Start listens again after Close.
func (w *ConversionWebhook) Start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server != nil {
		return errors.New("starting the conversion webhook: it is running already")
	}
	listener, err := tls.Listen("tcp", w.address, w.tls)
	if err != nil {
		return fmt.Errorf("starting the conversion webhook: %w", err)
	}
	w.server = &http.Server{
		Handler:           http.HandlerFunc(w.serve),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return context.Background() },
	}
	go w.server.Serve(listener) //nolint:errcheck // ends with Close
	return nil
}

// Close stops listening and cuts all connections.
func (w *ConversionWebhook) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server == nil {
		return nil
	}
	server := w.server
	w.server = nil
	return server.Close()
}

func (w *ConversionWebhook) serve(response http.ResponseWriter, request *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(response, "a conversion review is expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.requests++
	w.mu.Unlock()
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, object := range review.Request.Objects {
		converted, err := convertMorph(object.Raw, review.Request.DesiredAPIVersion)
		if err != nil {
			answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			answer.ConvertedObjects = nil
			break
		}
		answer.ConvertedObjects = append(answer.ConvertedObjects, converted)
	}
	review.Request, review.Response = nil, answer
	response.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(response).Encode(review); err != nil {
		return // the caller has gone
	}
}

// convertMorph renames spec.color (v1) to spec.colour (v2) or back.
func convertMorph(raw []byte, apiVersion string) (runtime.RawExtension, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return runtime.RawExtension{}, fmt.Errorf("decoding a morph: %w", err)
	}
	from, to := "colour", "color"
	if strings.HasSuffix(apiVersion, "/v2") {
		from, to = to, from
	}
	if value, found, err := unstructured.NestedString(object.Object, "spec", from); err == nil && found {
		unstructured.RemoveNestedField(object.Object, "spec", from)
		if err := unstructured.SetNestedField(object.Object, value, "spec", to); err != nil {
			return runtime.RawExtension{}, fmt.Errorf("converting a morph: %w", err)
		}
	}
	object.SetAPIVersion(apiVersion)
	data, err := object.MarshalJSON()
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encoding a morph: %w", err)
	}
	return runtime.RawExtension{Raw: data}, nil
}
