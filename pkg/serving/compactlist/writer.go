// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compactlist

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/features"

	"github.com/kubeannex/annex/pkg/storage/compact"
)

var _ responsewriter.UserProvidedDecorator = &writer{}

// noItems is where upstream's JSON of a list without items has none. Before it there is
// the apiVersion only, in which quotation marks would be escaped.
const noItems = `"items":[]`

// writer passes on what upstream writes, unless the items of the list are in answer. Then it
// waits until upstream has written the rest of the list, and writes it with the items.
type writer struct {
	http.ResponseWriter
	req    *http.Request
	answer *compact.Answer
	// failures encodes the status that says why the answer failed.
	failures runtime.Encoder
	// list is what upstream has written so far of a list without items.
	list bytes.Buffer
	// status is 0 unless such a list is being written.
	status int
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.answer.Taken() && status == http.StatusOK {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. With the last bytes of the list it writes
// everything, and returns as many bytes as the answer has more than it has returned before:
// upstream adds these numbers up to the size of the response in its metrics
// (k8s.io/apiserver pkg/endpoints/metrics/metrics.go, ResponseWriterDelegator), and none
// of its writers compares one with what it was given.
func (w *writer) Write(data []byte) (int, error) {
	if w.status == 0 {
		return w.ResponseWriter.Write(data)
	}
	before := w.list.Len()
	w.list.Write(data)
	// JSON has no line break but the one that ends it.
	if !bytes.HasSuffix(data, []byte("\n")) {
		return len(data), nil
	}
	counted := &countingWriter{ResponseWriter: w.ResponseWriter}
	encoder := &encoder{answer: w.answer, failures: w.failures, header: w.Header()}
	if at := bytes.Index(w.list.Bytes(), []byte(noItems)); at >= 0 {
		at += len(noItems) - 1
		encoder.before, encoder.after = w.list.Bytes()[:at], w.list.Bytes()[at:]
		encoder.gzip = w.compresses()
	}
	if encoder.gzip {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
	}
	responsewriters.SerializeObject(w.Header().Get("Content-Type"), encoder, counted, withoutEncoding(w.req), w.status, nil)
	w.status = 0
	return max(len(data), counted.written-before), counted.err
}

// gzipThreshold is how long an answer is at most that upstream does not compress (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters/writers.go, defaultGzipThresholdBytes).
const gzipThreshold = 128 << 10

// compresses reports whether upstream would compress the whole list.
func (w *writer) compresses() bool {
	return responsewriters.ContentEncodingSupported(w.req, features.APIResponseCompression) == "gzip" &&
		w.answer.LongerThan(gzipThreshold-w.list.Len())
}

// withoutEncoding is a request whose answer upstream does not compress.
func withoutEncoding(req *http.Request) *http.Request {
	plain := *req
	plain.Header = req.Header.Clone()
	plain.Header.Del("Accept-Encoding")
	return &plain
}

// countingWriter knows how much was written, and the error if it came to an end.
type countingWriter struct {
	http.ResponseWriter
	written int
	err     error
}

// Write implements io.Writer.
func (w *countingWriter) Write(data []byte) (int, error) {
	n, err := w.ResponseWriter.Write(data)
	w.written += n
	if err != nil {
		w.err = err
	}
	return n, err
}

var _ runtime.Encoder = &encoder{}

// encoder writes one list where it is given no object. An object is what upstream sends when that has failed.
type encoder struct {
	// before and after are what goes around the items; before is nil if it was not found.
	before, after []byte
	answer        *compact.Answer
	gzip          bool
	header        http.Header
	// failures encodes objects.
	failures runtime.Encoder
}

// Identifier implements runtime.Encoder.
func (e *encoder) Identifier() runtime.Identifier { return "compact" }

// Encode implements runtime.Encoder.
func (e *encoder) Encode(object runtime.Object, w io.Writer) error {
	switch {
	case object != nil:
		e.header.Del("Content-Encoding")
		return e.failures.Encode(object, w)
	case e.before == nil:
		return errors.New("upstream's JSON of a list has no place for items: switch the feature gate CompactCache off")
	case e.gzip:
		return e.answer.WriteGzip(w, e.before, e.after)
	}
	if _, err := w.Write(e.before); err != nil {
		return err
	}
	if err := e.answer.WriteItems(w); err != nil {
		return err
	}
	_, err := w.Write(e.after)
	return err
}
