// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/explain"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// fairness limits no level of priority.
type fairness struct{ utilflowcontrol.Interface }

func (fairness) GetInterestedWatchCount(*genericapirequest.RequestInfo) int { return 0 }
func (fairness) GetMaxSeats(string) uint64                                  { return 0 }

func TestSeatEstimator(t *testing.T) {
	counts := flowcontrolrequest.NewStorageObjectCountTracker()
	counts.Set("things.g", storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: 1500})
	estimate := seatEstimator(fairness{}, counts, annexed.NewCatalog())
	for name, tc := range map[string]struct {
		query string
		want  int64
	}{
		"everything from the cache": {"resourceVersion=0", 10}, // as much as a streamed answer holds at once
		"a page from etcd":          {"resourceVersionMatch=Exact&resourceVersion=7&limit=100", 2},
		"everything from etcd":      {"resourceVersionMatch=Exact&resourceVersion=7", 15},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Verb: "list", APIGroup: "g", Resource: "things"})
			if got := estimate(listRequest(ctx, t, tc.query)); got != tc.want {
				t.Errorf("got %d seats, want %d", got, tc.want)
			}
		})
	}
	if seatEstimator(nil, counts, nil) != nil {
		t.Error("got an estimator for a server without priority and fairness")
	}
}

// refusing lets nobody in.
type refusing struct {
	fairness
	asked *[]string
}

func (f refusing) Handle(_ context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string),
	_ func() flowcontrolrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, _ func(),
) {
	*f.asked = append(*f.asked, digest.User.GetName()+" "+digest.RequestInfo.Verb+" "+digest.RequestInfo.Resource)
	note(&flowcontrol.FlowSchema{}, &flowcontrol.PriorityLevelConfiguration{}, "")
}

// TestBehindFilters sends a list through the chain of filters that a server has.
func TestBehindFilters(t *testing.T) {
	ada := &user.DefaultInfo{Name: "ada"}
	for name, tc := range map[string]struct {
		user     user.Info
		verb     string
		refused  bool
		wantCode int
		want     []string
	}{
		"let in":             {user: ada, verb: "list", wantCode: http.StatusOK, want: []string{"handled for ada"}},
		"nobody":             {verb: "list", wantCode: http.StatusUnauthorized},
		"not authorized":     {user: &user.DefaultInfo{Name: "bob"}, wantCode: http.StatusForbidden},
		"no seats for lists": {user: ada, verb: "list", refused: true, wantCode: http.StatusTooManyRequests, want: []string{"ada list things"}},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			config := genericapiserver.NewConfig(Codecs)
			config.FeatureGate = utilfeature.DefaultFeatureGate
			config.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(config)
			config.Authentication.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				t.Error("the request was authenticated as one from outside")
				return nil, false, nil
			})
			config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser().GetName() == "ada" && a.GetVerb() == tc.verb {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionDeny, "", nil
			})
			if tc.refused {
				config.FlowControl = refusing{asked: &seen}
			}
			before := config.Authentication.Authenticator
			chain := behindFilters(config, http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
				requester, _ := genericapirequest.UserFrom(request.Context())
				seen = append(seen, "handled for "+requester.GetName())
			}))
			ctx := t.Context()
			if tc.user != nil {
				ctx = genericapirequest.WithUser(ctx, tc.user)
			}
			recorder := httptest.NewRecorder()
			chain.ServeHTTP(recorder, listRequest(ctx, t, "limit=5"))
			if recorder.Code != tc.wantCode {
				t.Errorf("got the code %d, want %d: %s", recorder.Code, tc.wantCode, recorder.Body)
			}
			if diff := cmp.Diff(tc.want, seen); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
			if reflect.ValueOf(before).Pointer() != reflect.ValueOf(config.Authentication.Authenticator).Pointer() {
				t.Error("the configuration of the server was changed")
			}
		})
	}
}

// full queues those who are listed, for as long as it is let to, and lets others in.
type full struct {
	fairness
	queued []string
}

func (f full) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string),
	_ func() flowcontrolrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, execute func(),
) {
	note(&flowcontrol.FlowSchema{}, &flowcontrol.PriorityLevelConfiguration{}, "")
	if slices.Contains(f.queued, digest.User.GetName()) {
		<-ctx.Done()
		return
	}
	execute()
}

// TestWhoWaitsKeepsNobodyOut queues more lists than may run at a time, and runs one beside them for
// longer than any may wait.
func TestWhoWaitsKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := genericapiserver.NewConfig(Codecs)
		config.FeatureGate = utilfeature.DefaultFeatureGate
		config.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(config)
		config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
		config.FlowControl = full{queued: []string{"ada"}}
		chain := behindFilters(config, explain.LimitAnalyses(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			select {
			case <-time.After(5 * analysisPatience):
			case <-request.Context().Done():
				t.Errorf("the list that runs was ended: %v", context.Cause(request.Context()))
			}
		})))
		ask := func(name string) *httptest.ResponseRecorder {
			recorder := httptest.NewRecorder()
			chain.ServeHTTP(recorder, listRequest(genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: name}), t, "limit=5"))
			return recorder
		}
		start := time.Now()
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				got := ask("ada")
				if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" || time.Since(start) != analysisPatience {
					t.Errorf("got %d, Retry-After %q after %s, want 429 after %s", got.Code, got.Header().Get("Retry-After"), time.Since(start), analysisPatience)
				}
			})
		}
		synctest.Wait()
		if got := ask("bob"); got.Code != http.StatusOK {
			t.Errorf("got %d for a list that need not wait, want 200: %s", got.Code, got.Body)
		}
		waiting.Wait()
	})
}

func listRequest(ctx context.Context, t *testing.T, query string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/apis/g/v1/things?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestDescriber(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.g"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "g", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.a"}, {JSONPath: ".spec.b"}}}, {Name: "v2"},
			},
		},
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(definition); err != nil {
		t.Fatal(err)
	}
	lister := apiextensionslisters.NewCustomResourceDefinitionLister(indexer)
	indexes := newDeclaredIndexes()
	indexes.definitions = lister
	describe := describer(lister, indexes)
	fields := []string{"spec.a", "spec.b"}
	for version, want := range map[string]explain.Definition{
		"v1": {Namespaced: true, Fields: fields, Indexes: annexed.Indexes{Fields: fields, Trigger: annexed.Trigger{Field: "spec.a"}}},
		"v2": {Namespaced: true},
	} {
		if diff := cmp.Diff(want, describe(schema.GroupVersionResource{Group: "g", Version: version, Resource: "things"})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
	if diff := cmp.Diff(explain.Definition{}, describe(schema.GroupVersionResource{Version: "v1", Resource: "pods"})); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	kept := keptHere(lister, nil)
	for resource, want := range map[schema.GroupResource]bool{
		{Group: "g", Resource: "things"}:                                       true,
		{Group: "g", Resource: "others"}:                                       false,
		{Resource: "pods"}:                                                     false,
		{Group: "kubeannex.io", Resource: "annexedgroups"}:                     true,
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: false,
		{Group: "apps", Resource: "deployments"}:                               false,
	} {
		if got := kept(resource); got != want {
			t.Errorf("%s: got %t, want %t", resource, got, want)
		}
	}
}
