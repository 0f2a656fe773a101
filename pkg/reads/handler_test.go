// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/serving"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// fakeRecorder stands for the storage, which a handler of a test plays.
type fakeRecorder struct {
	reading  annexed.Reading
	recorded bool
}

func (r *fakeRecorder) Reading() (annexed.Reading, bool) { return r.reading, r.recorded }

type fakeRecorderKey struct{}

// record plays the storage that a request reaches.
func record(req *http.Request, reading annexed.Reading) {
	r := req.Context().Value(fakeRecorderKey{}).(*fakeRecorder)
	r.reading, r.recorded = reading, true
}

func newTestTracker(rows int) (*Tracker, *clocktesting.FakePassiveClock) {
	passive := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	return newTracker(rows, passive, func(ctx context.Context) (context.Context, recorder) {
		r := &fakeRecorder{}
		return context.WithValue(ctx, fakeRecorderKey{}, r), r
	}), passive
}

// gadgetsOnly serves gadgets, which have a status.
func gadgetsOnly(resource schema.GroupVersionResource, subresource string) bool {
	return resource == schema.GroupVersionResource{Group: "lab.annex.test", Version: "v1", Resource: "gadgets"} && (subresource == "" || subresource == "status")
}

// anyIndex is there.
func anyIndex(schema.GroupResource, string) bool { return true }

// request is one request behind the filters of a server.
type request struct {
	verb, resource, namespace, labels, user, subresource string
}

func (r request) context(ctx context.Context) context.Context {
	ctx = audit.WithAuditContext(ctx)
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: r.user})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: r.verb, APIGroup: "lab.annex.test", APIVersion: "v1",
		Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, LabelSelector: r.labels,
	})
}

func (r request) send(ctx context.Context, handler http.Handler) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	req.Header.Set("User-Agent", "agent/v1 (linux/amd64)")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	return answer
}

func rowsOf(t *Tracker) []kubeannex.ListProfileRow {
	var rows []kubeannex.ListProfileRow
	for _, item := range t.Profiles().Items {
		item.Profile.LastSeen.Time = time.Time{}
		rows = append(rows, item.Profile)
	}
	return rows
}

func TestReadsAreCounted(t *testing.T) {
	indexed := annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: "l:app", Total: 1000, Scanned: 25, Returned: 20}
	tests := map[string]struct {
		request request
		inner   http.HandlerFunc

		wantRow         kubeannex.ListProfileRow
		wantAnnotations map[string]string
	}{
		"a list by an index": {
			request: request{verb: "list", namespace: "prod", labels: "app=x"},
			inner: func(w http.ResponseWriter, req *http.Request) {
				record(req, indexed)
				fmt.Fprint(w, "0123456789")
				fmt.Fprint(w, "abc")
			},
			wantRow: kubeannex.ListProfileRow{
				Verb: "list", Selector: "namespace,app=", Source: kubeannex.ListSourceCache, Index: "l:app",
				Count: 1, Scanned: 25, Returned: 20, Bytes: 13,
			},
			wantAnnotations: map[string]string{
				AnnotationSource: "Cache", AnnotationRule: "Latest", AnnotationIndex: "l:app", AnnotationScanned: "25", AnnotationReturned: "20",
			},
		},
		"a get of an object that is not": {
			request: request{verb: "get", namespace: "prod"},
			inner: func(w http.ResponseWriter, req *http.Request) {
				record(req, annexed.Reading{Source: annexed.SourceEtcd, Rule: annexed.RuleGetLatest})
				w.WriteHeader(http.StatusNotFound)
			},
			wantRow: kubeannex.ListProfileRow{
				Verb: "get", Selector: "namespace,name", Source: kubeannex.ListSourceEtcd, Count: 1, Failed: 1,
			},
			wantAnnotations: map[string]string{
				AnnotationSource: "Etcd", AnnotationRule: "GetLatest", AnnotationScanned: "0", AnnotationReturned: "0",
			},
		},
		"a watch": {
			request: request{verb: "watch"},
			inner: func(w http.ResponseWriter, req *http.Request) {
				record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleWatch})
				w.WriteHeader(http.StatusOK)
				fmt.Fprint(w, "event")
				fmt.Fprint(w, "event")
			},
			wantRow:         kubeannex.ListProfileRow{Verb: "watch", Source: kubeannex.ListSourceCache, Count: 1, Bytes: 10},
			wantAnnotations: map[string]string{AnnotationSource: "Cache", AnnotationRule: "Watch"},
		},
		"a list that is refused before anything is read": {
			request: request{verb: "list"},
			inner:   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
			wantRow: kubeannex.ListProfileRow{Verb: "list", Count: 1, Failed: 1},
		},
		"a get of a subresource": {
			request: request{verb: "get", subresource: "status"},
			inner: func(w http.ResponseWriter, req *http.Request) {
				record(req, annexed.Reading{Source: annexed.SourceEtcd, Rule: annexed.RuleGetLatest, Scanned: 1, Returned: 1})
				w.WriteHeader(http.StatusOK)
			},
			wantRow: kubeannex.ListProfileRow{
				Verb: "get", Resource: "gadgets/status", Selector: "name", Source: kubeannex.ListSourceEtcd, Count: 1, Scanned: 1, Returned: 1,
			},
			wantAnnotations: map[string]string{
				AnnotationSource: "Etcd", AnnotationRule: "GetLatest", AnnotationScanned: "1", AnnotationReturned: "1",
			},
		},
		"a list of which a number is not known": {
			request: request{verb: "list"},
			inner: func(_ http.ResponseWriter, req *http.Request) {
				record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: -1, Returned: 7})
			},
			wantRow: kubeannex.ListProfileRow{Verb: "list", Source: kubeannex.ListSourceCache, Count: 1, Returned: 7},
			wantAnnotations: map[string]string{
				AnnotationSource: "Cache", AnnotationRule: "Any", AnnotationScanned: "-1", AnnotationReturned: "7",
			},
		},
		"a watch that is refused": {
			request: request{verb: "watch"},
			inner:   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
			wantRow: kubeannex.ListProfileRow{Verb: "watch", Count: 1, Failed: 1},
		},
		"an answer without a body": {
			request: request{verb: "list"},
			inner:   func(http.ResponseWriter, *http.Request) {},
			wantRow: kubeannex.ListProfileRow{Verb: "list", Count: 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tracker, _ := newTestTracker(10)
			tc.request.resource, tc.request.user = "gadgets", "alice"
			ctx := tc.request.context(t.Context())
			tc.request.send(ctx, tracker.Handler(tc.inner, gadgetsOnly, anyIndex))
			want := tc.wantRow
			want.Client, want.ClientVersion, want.User, want.Group, want.Version = "agent", "v1", "alice", "lab.annex.test", "v1"
			if want.Resource == "" {
				want.Resource = "gadgets"
			}
			if diff := cmp.Diff([]kubeannex.ListProfileRow{want}, rowsOf(tracker)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantAnnotations, audit.AuditContextFrom(ctx).GetEventAnnotations()); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOtherRequestsPass(t *testing.T) {
	list := request{verb: "list", resource: "gadgets", user: "alice"}
	withResource, withVerb, withSubresource := list, list, list
	withResource.resource, withVerb.verb, withSubresource.subresource = "nothings", "create", "made-up"
	explained, _ := annexed.WithExplanation(list.context(t.Context()))
	tests := map[string]context.Context{
		"no information about the request": t.Context(),
		"a path that is no resource":       genericapirequest.WithRequestInfo(list.context(t.Context()), &genericapirequest.RequestInfo{Verb: "get", Path: "/version"}),
		"a resource that is not served":    withResource.context(t.Context()),
		"a write":                          withVerb.context(t.Context()),
		"a subresource that is not served": withSubresource.context(t.Context()),
		"what is only explained":           explained,
	}
	for name, ctx := range tests {
		t.Run(name, func(t *testing.T) {
			tracker, _ := newTestTracker(10)
			handler := tracker.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Context() != ctx {
					t.Error("the context was changed")
				}
				w.WriteHeader(http.StatusTeapot)
			}), gadgetsOnly, anyIndex)
			if answer := list.send(ctx, handler); answer.Code != http.StatusTeapot {
				t.Errorf("got code %d", answer.Code)
			}
			if rows := rowsOf(tracker); rows != nil {
				t.Errorf("got rows %v", rows)
			}
		})
	}
}

// TestTheServersOwnReadsPass tells them from those of others under its name.
func TestTheServersOwnReadsPass(t *testing.T) {
	for name, tc := range map[string]struct {
		authorization string
		want          int
	}{
		"the server itself":              {"Bearer own", 0},
		"who only has its name":          {"", 1},
		"its name and the wrong token":   {"Bearer other", 1},
		"its name and no kind of scheme": {"own", 1},
	} {
		t.Run(name, func(t *testing.T) {
			tracker, _ := newTestTracker(10)
			list := request{verb: "list", resource: "gadgets", user: user.APIServerUser}
			handler := serving.WithLoopback(tracker.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), gadgetsOnly, anyIndex), "own")
			req := httptest.NewRequestWithContext(list.context(t.Context()), http.MethodGet, "/", nil)
			req.Header.Set("Authorization", tc.authorization)
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if rows := rowsOf(tracker); len(rows) != tc.want {
				t.Errorf("got rows %v, want %d", rows, tc.want)
			}
		})
	}
}

func TestARunningWatchShows(t *testing.T) {
	tracker, passive := newTestTracker(10)
	watch := request{verb: "watch", resource: "gadgets", user: "alice"}
	ctx := watch.context(t.Context())
	watch.send(ctx, tracker.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleWatch, Index: "f:spec.color"})
		if rows := rowsOf(tracker); rows != nil {
			t.Errorf("before the answer begins: got rows %v", rows)
		}
		w.WriteHeader(http.StatusOK)
		if got := audit.AuditContextFrom(ctx).GetEventAnnotations()[AnnotationIndex]; got != "f:spec.color" {
			t.Errorf("when the answer has begun the index in the audit event is %q", got)
		}
		fmt.Fprint(w, "event")
		rows, _ := tracker.table.snapshot()
		if len(rows) != 1 || rows[0].reads.Load() != 1 || rows[0].bytes.Load() != 5 || rows[0].running.Load() != 1 {
			t.Errorf("while it runs: got rows %v", rowsOf(tracker))
		}
		passive.SetTime(time.Unix(2000, 0))
	}), gadgetsOnly, anyIndex))
	rows, _ := tracker.table.snapshot()
	if len(rows) != 1 || rows[0].running.Load() != 0 || rows[0].reads.Load() != 1 {
		t.Errorf("when it is over: got rows %v", rowsOf(tracker))
	}
	if got := tracker.Profiles().Items[0].Profile.LastSeen.Unix(); got != 1000 {
		t.Errorf("last seen: got %d, want the time of the request, 1000", got)
	}
}

// TestAWatchThatIsOverMakesRoom checks that a row which was kept for its running watch
// goes before those that have cost more, once that is over.
func TestAWatchThatIsOverMakesRoom(t *testing.T) {
	tracker, _ := newTestTracker(3)
	read := func(verb, user string, inner http.HandlerFunc) {
		r := request{verb: verb, resource: "gadgets", user: user}
		r.send(r.context(t.Context()), tracker.Handler(inner, gadgetsOnly, anyIndex))
	}
	list := func(user string) {
		read("list", user, func(_ http.ResponseWriter, req *http.Request) {
			record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: 100})
		})
	}
	users := func() []string {
		var users []string
		for _, row := range rowsOf(tracker) {
			if row.Client != othersClient {
				users = append(users, row.User)
			}
		}
		slices.Sort(users)
		return users
	}
	read("watch", "watcher", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		for _, user := range []string{"a", "b", "c"} {
			list(user)
		}
		if diff := cmp.Diff([]string{"b", "c", "watcher"}, users()); diff != "" {
			t.Errorf("while it runs: users (-want +got):\n%s", diff)
		}
	})
	list("d")
	if diff := cmp.Diff([]string{"b", "c", "d"}, users()); diff != "" {
		t.Errorf("when it is over: users (-want +got):\n%s", diff)
	}
}

// TestTheWriterStaysAsCapable checks what watches need of a writer, over both protocols.
func TestTheWriterStaysAsCapable(t *testing.T) {
	for name, tc := range map[string]struct{ http2, wantHijacker bool }{
		"HTTP/1.1": {false, true},
		"HTTP/2":   {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			tracker, _ := newTestTracker(10)
			watch := request{verb: "watch", resource: "gadgets", user: "alice"}
			tracked := tracker.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, flushes := w.(http.Flusher)
				_, hijacks := w.(http.Hijacker)
				if !flushes || hijacks != tc.wantHijacker {
					t.Errorf("flushes %v, hijacks %v", flushes, hijacks)
				}
				if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
					t.Errorf("setting a deadline: %v", err)
				}
			}), gadgetsOnly, anyIndex)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				tracked.ServeHTTP(w, req.WithContext(watch.context(req.Context())))
			}))
			server.EnableHTTP2 = tc.http2
			server.StartTLS()
			defer server.Close()
			answer, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if !strings.HasPrefix(answer.Proto, name) || answer.StatusCode != http.StatusOK {
				t.Errorf("got %s over %s", answer.Status, answer.Proto)
			}
		})
	}
}

func TestProfilesAreOrderedByWhatTheyCost(t *testing.T) {
	tracker, _ := newTestTracker(10)
	for _, r := range []struct {
		user            string
		scanned, length int
	}{{"little", 1, 5}, {"much", 1000, 5}, {"long", 1000, 900}, {"little", 1, 5}} {
		list := request{verb: "list", resource: "gadgets", user: r.user}
		list.send(list.context(t.Context()), tracker.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: int64(r.scanned)})
			fmt.Fprint(w, strings.Repeat("x", r.length))
		}), gadgetsOnly, anyIndex))
	}
	profiles := tracker.Profiles()
	names := map[string]bool{}
	var users []string
	for _, item := range profiles.Items {
		users = append(users, item.Profile.User)
		names[item.Name] = true
	}
	if diff := cmp.Diff([]string{"long", "much", "little"}, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	if len(names) != 3 || profiles.Items[2].Profile.Count != 2 || !profiles.Since.Equal(&profiles.Items[0].CreationTimestamp) {
		t.Errorf("got %v", profiles)
	}
}
