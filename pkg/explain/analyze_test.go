// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

func TestAnalyzeCountsAndDrops(t *testing.T) {
	chunk := strings.Repeat("x", 1000)
	explainer := newExplainer(func(w http.ResponseWriter, request *http.Request) {
		for range 100 {
			if request.Context().Err() != nil {
				return
			}
			fmt.Fprint(w, chunk)
		}
	})
	status, err := explainer.Explain(asker(t), &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things", Analyze: true})
	if err != nil {
		t.Fatal(err)
	}
	if status.Actual == nil || status.Actual.Duration == nil {
		t.Fatalf("no actual cost: %+v", status)
	}
	if diff := cmp.Diff(ptr.To[int64](100_000), status.Actual.Bytes); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

// TestAnalyzePassesTheServer checks that a list is explained past the filters and run behind them,
// as the user who asks and with his user agent.
func TestAnalyzePassesTheServer(t *testing.T) {
	var sent []string
	handler := func(at string) http.HandlerFunc {
		return func(w http.ResponseWriter, request *http.Request) {
			requester, _ := genericapirequest.UserFrom(request.Context())
			sent = append(sent, fmt.Sprintf("%s %s %s %q %t", at, request.URL.RequestURI(), requester.GetName(), request.UserAgent(), annexed.HasRecorder(request.Context())))
			fmt.Fprint(w, "{}")
		}
	}
	config := newExplainer(handler("handlers")).config
	config.Server = handler("server")
	explainer := New(config)
	review := WithOrigin(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		if _, err := explainer.Explain(request.Context(), &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things", Analyze: true}); err != nil {
			t.Error(err)
		}
	}))
	request := httptest.NewRequestWithContext(asker(t), http.MethodPost, "/apis/kubeannex.io/v1alpha1/listreviews", http.NoBody)
	request.Header.Set("User-Agent", "agent/1.2")
	review.ServeHTTP(httptest.NewRecorder(), request)
	want := []string{`handlers /apis/g/v1/things ada "" true`, `server /apis/g/v1/things ada "agent/1.2" true`}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func TestAnalysesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		config := newExplainer(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }).config
		config.Server = LimitAnalyses(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-goOn
			fmt.Fprint(w, "{}")
		}))
		explainer := New(config)
		ask := func(analyze bool) error {
			_, err := explainer.Explain(asker(t), &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things", Analyze: analyze})
			return err
		}
		errs := make(chan error, maxAnalyses)
		for range maxAnalyses {
			go func() { errs <- ask(true) }()
		}
		synctest.Wait()
		err := ask(true)
		if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 {
			t.Errorf("got %v, a delay of %d s, for one too many", err, seconds)
		}
		if want := "2 lists are being analyzed already: wait, or ask without analyze"; err == nil || err.Error() != want {
			t.Errorf("got %v for one too many, want %s", err, want)
		}
		if err := ask(false); err != nil {
			t.Errorf("got %v for a list that is not run", err)
		}
		close(goOn)
		for range maxAnalyses {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if err := ask(true); err != nil {
			t.Errorf("got %v after the others were over", err)
		}
	})
}

func TestAnalysisThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		server http.HandlerFunc
		want   metav1.Status
		// wantMessage may be anything if it is empty.
		wantMessage string
	}{
		"fairness refuses": {
			server: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			},
			want: metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 7}},
		},
		"broken off": {
			server: func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, "{")
				panic(http.ErrAbortHandler) //nolint:forbidigo // so do upstream's filters
			},
			want: metav1.Status{Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Details: &metav1.StatusDetails{}},
		},
		"a status without a kind": { // so does upstream's filter of timeouts
			server: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusGatewayTimeout)
				_ = json.NewEncoder(w).Encode(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status())
			},
			want:        metav1.Status{Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Details: &metav1.StatusDetails{}},
			wantMessage: "Timeout: request did not complete within the allotted timeout",
		},
		"a status of another code": {
			server: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadGateway)
				_ = json.NewEncoder(w).Encode(apierrors.NewTimeoutError("not of this answer", 0).Status())
			},
			want: metav1.Status{Code: http.StatusBadGateway, Reason: metav1.StatusReasonInternalError, Details: &metav1.StatusDetails{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := newExplainer(func(http.ResponseWriter, *http.Request) {}).config
			config.Server = LimitAnalyses(tc.server)
			explainer := New(config)
			for range maxAnalyses + 1 { // each makes room for the next
				_, err := explainer.Explain(asker(t), &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things", Analyze: true})
				status, ok := err.(*apierrors.StatusError) //nolint:errorlint // bare is what is promised
				if !ok {
					t.Fatalf("got %T %v, want a status", err, err)
				}
				got := status.ErrStatus
				if tc.wantMessage != "" && got.Message != tc.wantMessage {
					t.Errorf("got the message %q, want %q", got.Message, tc.wantMessage)
				}
				got = metav1.Status{Code: got.Code, Reason: got.Reason, Details: &metav1.StatusDetails{RetryAfterSeconds: got.Details.RetryAfterSeconds}}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
			}
		})
	}
}
