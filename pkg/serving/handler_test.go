// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// codecs encode nothing but Status.
func codecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	return serializer.NewCodecFactory(scheme)
}

// serve sends one request through the gate to a handler, as the filters would have prepared it.
func serve(t *testing.T, gate *Gate, verb, group, name string, inner http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	return serveWith(t, gate, verb, group, name, nil, inner)
}

// serveWith is serve with headers that authentication removes.
func serveWith(t *testing.T, gate *Gate, verb, group, name string, headers map[string]string, inner http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	info := &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIPrefix: "apis", APIGroup: group, APIVersion: "v1", Resource: "gadgets", Verb: verb,
	}
	ctx := genericapirequest.WithRequestInfo(t.Context(), info)
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: name})
	recorder := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/"+group+"/v1/gadgets", nil)
	req.Header.Set("X-Somebody-Else", "somebody")
	for header, value := range headers {
		req.Header.Set(header, value)
	}
	handler := gate.Handler(inner, codecs(), "own.test")
	authentication := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Del("X-Proxied-User")
		req.Header.Del("Authorization")
		handler.ServeHTTP(w, req)
	})
	proxied := WithFrontProxy(authentication, headerrequest.StaticStringSlice{"X-Remote-User", "X-Proxied-User"})
	WithLoopback(proxied, ownToken).ServeHTTP(recorder, req)
	return recorder
}

// ownToken is the token of the server's own client.
const ownToken = "own"

// Ways to send a request.
func proxied(user string) map[string]string { return map[string]string{"x-proxied-user": user} }
func bearing(token string) map[string]string {
	return map[string]string{"authorization": "Bearer " + token}
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func TestAnswers(t *testing.T) {
	type answer struct {
		Code       int
		Reason     metav1.StatusReason
		RetryAfter string
		Details    int32
	}
	var (
		passes      = answer{Code: http.StatusOK}
		unavailable = answer{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "1", 1}
		wait        = answer{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "1", 1}
		gone        = answer{Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
	)
	tests := map[v1alpha1.ServingMode]map[string]answer{
		closed:   {"get": unavailable, "list": unavailable, "watch": unavailable, "create": unavailable, "delete": unavailable},
		readOnly: {"get": passes, "list": passes, "watch": passes, "create": wait, "update": wait, "patch": wait, "delete": wait, "deletecollection": wait},
		open:     {"get": passes, "list": passes, "watch": passes, "create": passes, "update": passes, "patch": passes, "delete": passes},
		released: {"get": wait, "list": wait, "watch": gone, "create": wait, "update": wait, "delete": wait},
	}
	for mode, verbs := range tests {
		for verb, want := range verbs {
			t.Run(string(mode)+" "+verb, func(t *testing.T) {
				gate := syncedGate(nil)
				gate.set(lab, mode)
				recorder := serve(t, gate, verb, lab, "somebody", ok)
				got := answer{Code: recorder.Code, RetryAfter: recorder.Header().Get("Retry-After")}
				if recorder.Body.Len() > 0 {
					var status metav1.Status
					if err := json.Unmarshal(recorder.Body.Bytes(), &status); err != nil {
						t.Fatalf("%v: %s", err, recorder.Body)
					}
					got.Reason = status.Reason
					if status.Details != nil {
						got.Details = status.Details.RetryAfterSeconds
					}
					if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure || int(status.Code) != recorder.Code {
						t.Errorf("no proper Status: %s", recorder.Body)
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				assertServing(t, gate, mode)
			})
		}
	}
}

func TestWhoPassesAClosedGate(t *testing.T) {
	tests := map[string]struct {
		group, user string
		headers     map[string]string
		want        int
	}{
		"a user":            {lab, "somebody", nil, http.StatusServiceUnavailable},
		"the server itself": {lab, user.APIServerUser, bearing(ownToken), http.StatusOK},
		"kube-apiserver itself, by the front proxy": {lab, user.APIServerUser, proxied(user.APIServerUser), http.StatusServiceUnavailable},
		"a certificate with the name of the server": {lab, user.APIServerUser, nil, http.StatusServiceUnavailable},
		"another token for the name of the server":  {lab, user.APIServerUser, bearing("another"), http.StatusServiceUnavailable},
		"an empty token for the name of the server": {lab, user.APIServerUser, bearing(""), http.StatusServiceUnavailable},
		"the server itself in the name of a user":   {lab, "somebody", bearing(ownToken), http.StatusServiceUnavailable},
		"a request for the server's own":            {"own.test", "somebody", nil, http.StatusOK},
		"a request for the core group":              {"", "somebody", nil, http.StatusOK},
	}
	gates := map[string]func() *Gate{
		"that has read nothing yet": func() *Gate { return NewGate(nil) },
		"of a group half imported": func() *Gate {
			gate := syncedGate(nil)
			gate.set(lab, closed)
			return gate
		},
	}
	for name, tc := range tests {
		for at, gate := range gates {
			t.Run(name+", a gate "+at, func(t *testing.T) {
				if got := serveWith(t, gate(), "get", tc.group, tc.user, tc.headers, ok).Code; got != tc.want {
					t.Errorf("code: got %d, want %d", got, tc.want)
				}
			})
		}
	}
}

// A server whose own client has no token, as in a test, has no requests of its own.
func TestNoTokenIsNobodys(t *testing.T) {
	req := httptest.NewRequestWithContext(genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: user.APIServerUser}), http.MethodGet, "/", nil)
	req.Header.Set("Authorization", "Bearer ")
	WithLoopback(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if IsLoopback(req.Context()) {
			t.Error("it counts as the server's own")
		}
	}), "").ServeHTTP(httptest.NewRecorder(), req)
}

func TestUnknownGroup(t *testing.T) {
	const gone = http.StatusNotFound
	tests := map[string]struct {
		group, user string
		headers     map[string]string
		want        int
	}{
		"sent by the cluster":                           {lab, "somebody", proxied("somebody"), http.StatusServiceUnavailable},
		"sent by the cluster for somebody without name": {lab, "system:anonymous", proxied("system:anonymous"), http.StatusServiceUnavailable},
		// kube-apiserver would believe that parameters of its policies are gone.
		"sent by the cluster for itself": {lab, user.APIServerUser, proxied(user.APIServerUser), http.StatusServiceUnavailable},
		"by itself":                      {lab, "somebody", nil, gone},
		"the server itself":              {lab, user.APIServerUser, bearing(ownToken), gone},
		"a request for the server's own": {"own.test", "somebody", proxied("somebody"), gone},
		"a request for the core group":   {"", "somebody", proxied("somebody"), gone},
	}
	notFound := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(gone) }
	for name, tc := range tests {
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
			t.Run(name+", "+verb, func(t *testing.T) {
				answer := serveWith(t, syncedGate(nil), verb, tc.group, tc.user, tc.headers, notFound)
				if answer.Code != tc.want {
					t.Fatalf("code: got %d, want %d", answer.Code, tc.want)
				}
				if answer.Code == gone {
					return
				}
				var status metav1.Status
				if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
					t.Fatalf("%v: %s", err, answer.Body)
				}
				message := status.Message
				if !strings.Contains(message, lab) || !strings.Contains(message, "docs/operations.md") || strings.Contains(message, "\n") {
					t.Errorf("message: %s", message)
				}
				status.Message = ""
				want := unavailable("").Status()
				want.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
				if diff := cmp.Diff(want, status); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				if got := answer.Header().Get("Retry-After"); got != "1" {
					t.Errorf("Retry-After: got %q, want 1", got)
				}
			})
		}
	}
}

func TestDiscoveryPasses(t *testing.T) {
	gate := syncedGate(nil)
	gate.set(lab, closed)
	recorder := httptest.NewRecorder()
	ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Path: "/apis/" + lab + "/v1", Verb: "get"})
	gate.Handler(http.HandlerFunc(ok), codecs()).ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/"+lab+"/v1", nil))
	if recorder.Code != http.StatusOK {
		t.Errorf("code: got %d, want 200", recorder.Code)
	}
}

// stream is the inner handler of a watch: it writes one event and waits for its end.
func stream(gate *Gate, code int, contentType, encoding, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", contentType)
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.WriteHeader(code)
		io.WriteString(w, content) //nolint:errcheck // a recorder takes everything
		gate.set(lab, released)
		<-req.Context().Done()
	}
}

func TestLastEventOfAWatch(t *testing.T) {
	const last = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"lab.test has moved: list again","reason":"Expired","code":410}}` + "\n"
	tests := map[string]struct {
		code                  int
		contentType, encoding string
		want                  string
	}{
		"a stream of JSON":            {http.StatusOK, "application/json", "", last},
		"a stream of tables":          {http.StatusOK, "application/json;as=Table", "", last},
		"an unknown encoding":         {http.StatusOK, "application/json", "br", ""},
		"a binary stream":             {http.StatusOK, "application/vnd.kubernetes.protobuf;stream=watch", "", ""},
		"no type at all":              {http.StatusOK, "", "", ""},
		"an answer that is no stream": {http.StatusInternalServerError, "application/json", "", ""},
		"a connection that was taken": {0, "application/json", "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gate := syncedGate(nil)
			gate.set(lab, open)
			inner := stream(gate, tc.code, tc.contentType, tc.encoding, "{}\n")
			want := "{}\n" + tc.want
			if tc.code == 0 {
				want = ""
				inner = func(w http.ResponseWriter, req *http.Request) {
					w.Header().Set("Content-Type", tc.contentType)
					gate.set(lab, released)
					<-req.Context().Done()
				}
			}
			recorder := serve(t, gate, "watch", lab, "somebody", inner)
			if diff := cmp.Diff(want, recorder.Body.String()); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
			assertServing(t, gate, released)
		})
	}
}

func TestLastEventOfACompressedWatch(t *testing.T) {
	gate := syncedGate(nil)
	gate.set(lab, open)
	var first strings.Builder
	compressed := gzip.NewWriter(&first)
	if _, err := io.WriteString(compressed, "{}\n"); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	recorder := serve(t, gate, "watch", lab, "somebody", stream(gate, http.StatusOK, "application/json", "gzip", first.String()))
	reader, err := gzip.NewReader(recorder.Body)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(content); !strings.HasPrefix(got, "{}\n") || !strings.Contains(got, `"code":410`) {
		t.Errorf("stream: %s", got)
	}
}

func TestWatchThatEndsByItself(t *testing.T) {
	gate := syncedGate(nil)
	gate.set(lab, open)
	recorder := serve(t, gate, "watch", lab, "somebody", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}\n") //nolint:errcheck // a recorder takes everything
	})
	if got := recorder.Body.String(); got != "{}\n" {
		t.Errorf("stream: %s", got)
	}
	gate.set(lab, released)
	assertServing(t, gate, released)
}

// A write whose client has gone may still be on its way to etcd.
func TestInterruptedWriteCountsALittleLonger(t *testing.T) {
	gate := syncedGate(nil)
	gate.set(lab, open)
	p := mustAdmit(t, gate, write)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	leaveAfter(ctx, p)
	gate.set(lab, readOnly)
	assertServing(t, gate, open)
}
