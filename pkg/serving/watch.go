// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// serveWatch serves a watch until it ends by itself or ctx, a child of the
// request's, is cancelled by the gate. Then the client is told to list again:
// by a last event in a stream of JSON. Other streams, of websockets and of
// binary encodings, just end; a client that comes back is answered by 410.
func serveWatch(ctx context.Context, inner http.Handler, w http.ResponseWriter, req *http.Request, name string) {
	recorder := &statusRecorder{ResponseWriter: w}
	inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(recorder), req.WithContext(ctx))
	if !errors.Is(context.Cause(ctx), errWatchEnded) || req.Context().Err() != nil {
		return
	}
	// A websocket has no status: its connection was taken over.
	mediaType, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if err != nil || mediaType != runtime.ContentTypeJSON || recorder.status != http.StatusOK {
		return
	}
	if err := writeLastEvent(w, name); err != nil {
		// The client is gone; it will ask again.
		utilruntime.HandleErrorWithContext(ctx, err, "Ending a watch", "group", name)
	}
}

// writeLastEvent writes the event in the encoding of the stream. A compressed
// stream is a row of independent members (k8s.io/apiserver
// pkg/endpoints/handlers/watch.go, perFlushGzipWriter), so one more may follow.
func writeLastEvent(w http.ResponseWriter, name string) error {
	status := expired(name).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	object, err := json.Marshal(status)
	if err != nil {
		return err
	}
	frame, err := json.Marshal(metav1.WatchEvent{Type: string(apiwatch.Error), Object: runtime.RawExtension{Raw: object}})
	if err != nil {
		return err
	}
	frame = append(frame, '\n')
	switch encoding := w.Header().Get("Content-Encoding"); encoding {
	case "":
		_, err = w.Write(frame)
	case "gzip":
		compressed := gzip.NewWriter(w)
		if _, err = compressed.Write(frame); err == nil {
			err = compressed.Close()
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	return nil
}

var _ responsewriter.UserProvidedDecorator = &statusRecorder{}

// statusRecorder remembers the status code of a response. It is 0 before one was written.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// Unwrap returns the writer below.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *statusRecorder) Write(content []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(content)
}
