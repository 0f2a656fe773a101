// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// detached ends with its parent and carries none of its values: the audit event,
// the trace, the recorder and the task of the request in which another one is made
// are not that one's.
type detached struct{ context.Context } //nolint:containedctx // it is a context itself

// Value implements context.Context.
func (detached) Value(any) any { return nil }

// contextFor is the context of a request that is made in another one's, with
// what the filters of a server put there, for the same user.
func contextFor(ctx context.Context, request *Request) context.Context {
	inner := context.Context(detached{ctx})
	if requester, ok := genericapirequest.UserFrom(ctx); ok {
		inner = genericapirequest.WithUser(inner, requester)
	}
	inner = genericapirequest.WithReceivedTimestamp(inner, time.Now())
	return genericapirequest.WithRequestInfo(inner, request.Info)
}

// send lets the handler answer the request, and returns the size of the answer's
// body or the error in it, and its header. With onlyBegin, the request ends as soon as a success begins.
func send(ctx context.Context, handler http.Handler, request *Request, onlyBegin bool) (bodyBytes int64, header http.Header, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &answer{header: http.Header{}}
	if onlyBegin {
		a.begun = cancel
	}
	if err := serve(handler, a, request.http(ctx)); err != nil {
		return 0, a.header, err
	}
	return a.size, a.header, a.err()
}

// serve lets the handler answer. An answer that it breaks off is none
// (k8s.io/apiserver pkg/server/filters/timeout.go).
func serve(handler http.Handler, a *answer, request *http.Request) (err error) {
	defer func() {
		thrown := recover()
		if thrown == nil {
			return
		}
		if thrown != http.ErrAbortHandler { //nolint:errorlint // it is thrown as it is
			panic(thrown) //nolint:forbidigo // it is another's and goes on
		}
		err = apierrors.NewTimeoutError("the list was broken off because it took too long: ask for fewer objects", 0)
	}()
	handler.ServeHTTP(a, request)
	return nil
}

// maxErrorBytes is how much of an error is read.
const maxErrorBytes = 1 << 20

// answer counts a body and keeps it only if it is an error.
type answer struct {
	header http.Header
	code   int
	size   int64
	failed bytes.Buffer
	// begun is called when a success begins, unless it is nil.
	begun func()
}

var (
	_ http.ResponseWriter                 = &answer{}
	_ responsewriter.CloseNotifierFlusher = &answer{}
)

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code != 0 || code < http.StatusOK {
		return
	}
	a.code = code
	if !a.isError() && a.begun != nil {
		a.begun()
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.size += int64(len(data))
	if room := maxErrorBytes - a.failed.Len(); a.isError() && room > 0 {
		a.failed.Write(data[:min(len(data), room)])
	}
	return len(data), nil
}

// Flush implements http.Flusher. Watches are refused without.
func (a *answer) Flush() {}

// CloseNotify implements http.CloseNotifier, without which upstream's wrappers hide
// Flush (k8s.io/apiserver pkg/endpoints/responsewriter). It tells nothing: the context does.
func (a *answer) CloseNotify() <-chan bool { return nil }

func (a *answer) isError() bool { return a.code >= http.StatusBadRequest }

// err is the API status of an answer that is an error. That of a request that took too long
// lacks its kind (k8s.io/apiserver pkg/server/filters/timeout.go). An answer in other words
// becomes what kubectl makes of it.
func (a *answer) err() error {
	if !a.isError() {
		return nil
	}
	status := metav1.Status{}
	isStatus := json.Unmarshal(a.failed.Bytes(), &status) == nil && status.Code == int32(a.code) &&
		(status.Kind == "Status" || status.Kind == "" && status.Reason != "")
	if isStatus {
		return &apierrors.StatusError{ErrStatus: status}
	}
	retryAfter, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return apierrors.NewGenericServerResponse(a.code, http.MethodGet, schema.GroupResource{}, "", strings.TrimSpace(a.failed.String()), retryAfter, true)
}
