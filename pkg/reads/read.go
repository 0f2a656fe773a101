// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"bufio"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

var (
	_ responsewriter.UserProvidedDecorator = &read{}
	_ http.Hijacker                        = &read{}
)

// read is one request that is tracked, and the writer of its answer. It is
// counted when it is over, a watch already when its answer begins.
type read struct {
	http.ResponseWriter

	tracker  *Tracker
	recorder recorder
	// annotate adds what was read to the audit event of the request.
	annotate func(annexed.Reading)
	// served reports whether the resource is there still.
	served func() bool
	// indexed reports whether the resource has an index still.
	indexed func(index string) bool
	// ended is the error of the request's context, once its time is over or its client has left.
	ended func() error
	// key lacks the source and the index until the read is counted.
	key key
	// version is that of the client.
	version string

	// code is 0 until the answer begins.
	code int
	// complete says that the handler has returned. A panic of it means that the answer is broken off.
	complete bool
	// broken says that a part of the answer could not be written, so that the client lacks
	// the rest. Upstream's handlers return as if nothing were the matter
	// (k8s.io/apiserver pkg/endpoints/handlers/responsewriters/writers.go, SerializeObject).
	broken bool
	// written is what was sent before the read was counted, in bytes.
	written int64
	// row and counts are nil until the read is counted.
	row    *row
	counts *counts
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *read) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *read) WriteHeader(code int) {
	r.begin(code)
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *read) Write(data []byte) (int, error) {
	r.begin(http.StatusOK)
	n, err := r.ResponseWriter.Write(data)
	r.sent(int64(n))
	if err != nil {
		r.broken = true
	}
	return n, err
}

// Hijack implements http.Hijacker, for watches over a web socket. What is sent there is not counted.
func (r *read) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.begin(http.StatusSwitchingProtocols)
	//nolint:forcetypeassert // it is called only where the inner writer has the method, see responsewriter.WrapForHTTP1Or2
	return r.ResponseWriter.(http.Hijacker).Hijack()
}

// begin is called with every part of an answer and notes the first one. A watch
// is counted there: it may go on for long, and its audit event ResponseStarted is
// written when the header is.
func (r *read) begin(code int) {
	if r.code != 0 {
		return
	}
	r.code = code
	if r.key.verb == verbWatch {
		r.count()
		r.row.running.Add(1)
	}
}

func (r *read) sent(bytes int64) {
	if r.row == nil {
		r.written += bytes
		return
	}
	r.row.sent(bytes)
	r.counts.bytes.Add(bytes)
}

// end is called when the handler has returned or panics.
func (r *read) end() {
	switch {
	case r.row == nil:
		r.count()
	case r.key.verb == verbWatch:
		r.tracker.table.watchEnded(r.row)
	}
}

// failed reports whether the client got an error, or less than an answer. A watch
// that has begun has not failed: it ends when the client leaves.
func (r *read) failed() bool {
	switch {
	case r.code >= http.StatusBadRequest:
		return true
	case r.code != 0 && r.key.verb == verbWatch:
		return false
	}
	return !r.complete || r.broken || r.ended() != nil
}

// count adds the read to the table and the metrics.
func (r *read) count() {
	reading, recorded := r.recorder.Reading()
	if recorded {
		r.annotate(reading)
	}
	source := SourceOf(reading.Source)
	r.key.source, r.key.index = source, reading.Index
	r.row = r.tracker.table.touch(r.key, r.version, r.tracker.clock.Now(), r.served)
	r.counts = r.tracker.counters.of(series{
		group: r.key.group, resource: r.key.resource, verb: r.key.verb,
		source: source, rule: string(reading.Rule), index: reading.Index,
	}, func() bool { return r.served() && (reading.Index == "" || r.indexed(reading.Index)) })
	// A number that is not known is negative.
	failed, scanned, returned := r.failed(), max(reading.Scanned, 0), max(reading.Returned, 0)
	r.row.add(failed, scanned, returned, r.written)
	r.counts.add(failed, scanned, returned, r.written)
}

// SourceOf is the name of a source in the API. It is empty where nothing was read.
func SourceOf(source annexed.Source) kubeannex.ListSource {
	switch source {
	case annexed.SourceCache:
		return kubeannex.ListSourceCache
	case annexed.SourceEtcd:
		return kubeannex.ListSourceEtcd
	}
	return ""
}
