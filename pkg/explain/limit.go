// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxAnalyses is how many lists are run for reviews at a time, whatever fairness would allow.
const maxAnalyses = 2

// LimitAnalyses lets few lists be run at a time and answers others with 429. It belongs behind the filters
// of Config.Server: a list that waits for its turn there keeps nobody from running.
func LimitAnalyses(handlers http.Handler) http.Handler {
	running := make(chan struct{}, maxAnalyses)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			handlers.ServeHTTP(w, req)
		default:
			refuse(w)
		}
	})
}

func refuse(w http.ResponseWriter) {
	status := apierrors.NewTooManyRequests(fmt.Sprintf("%d lists are being analyzed already: wait, or ask without analyze", maxAnalyses), 1).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) //nolint:errchkjson // the writer is this process's and takes everything
}
