// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeannex/annex/test/env"
)

// cluster answers SubjectAccessReviews: ann may do everything, sue what has a selector, nobody else anything. About
// eve's requests without a selector it fails, and it denies them to dee.
type cluster struct {
	kubeconfig string
	asked      atomic.Int64
	// contentType is that of the last question.
	contentType atomic.Value
}

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	c := &cluster{kubeconfig: filepath.Join(tb.TempDir(), "kubeconfig")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		c.asked.Add(1)
		c.contentType.Store(request.Header.Get("Content-Type"))
		var review authorizationv1.SubjectAccessReview
		body, err := io.ReadAll(request.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		bySelector := selective(review.Spec.ResourceAttributes)
		if review.Spec.User == "eve" && !bySelector {
			http.Error(w, "not now", http.StatusBadRequest)
			return
		}
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: bySelector || review.Spec.User == "ann", Reason: "says the cluster"}
		review.Status.Denied = review.Spec.User == "dee" && !bySelector
		review.Status.Allowed = review.Status.Allowed && review.Spec.User != "ben"
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	tb.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster"}
	config.CurrentContext = "cluster"
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		tb.Fatal(err)
	}
	return c
}

func selective(attributes *authorizationv1.ResourceAttributes) bool {
	return attributes != nil && (attributes.FieldSelector != nil || attributes.LabelSelector != nil)
}

// delegated is what a server that asks the cluster decides by.
func delegated(tb testing.TB, c *cluster) authorizer.Authorizer {
	tb.Helper()
	o := NewAuthorizationOptions()
	o.completeDelegation(c.kubeconfig)
	var info genericapiserver.AuthorizationInfo
	if err := o.applyDelegated(&info); err != nil {
		tb.Fatal(err)
	}
	return info.Authorizer
}

func TestDelegatedAuthorization(t *testing.T) {
	get := authorizer.AttributesRecord{Verb: "get", APIGroup: "lab.test", Resource: "gadgets", Name: "one", ResourceRequest: true}
	for name, tc := range map[string]struct {
		user       user.DefaultInfo
		attributes authorizer.AttributesRecord
		want       authorizer.Decision
		wantReason string
		wantAsked  int64
	}{
		"a user whom the cluster allows": {
			user: user.DefaultInfo{Name: "ann"}, attributes: get,
			want: authorizer.DecisionAllow, wantReason: "says the cluster", wantAsked: 1,
		},
		"a user whom it does not allow": {
			user: user.DefaultInfo{Name: "ben"}, attributes: get,
			want: authorizer.DecisionNoOpinion, wantReason: "kubernetes.io/webhook: says the cluster", wantAsked: 1,
		},
		"an administrator": {
			user: user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, attributes: get,
			want: authorizer.DecisionAllow,
		},
		"a health check": {
			user: user.DefaultInfo{Name: "ben"}, attributes: authorizer.AttributesRecord{Verb: "get", Path: "/readyz"},
			want: authorizer.DecisionAllow,
		},
		"another path": {
			user: user.DefaultInfo{Name: "ben"}, attributes: authorizer.AttributesRecord{Verb: "get", Path: "/metrics"},
			want: authorizer.DecisionNoOpinion, wantReason: "kubernetes.io/webhook: says the cluster", wantAsked: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			decides := delegated(t, c)
			tc.attributes.User = &tc.user
			// The second answer is remembered.
			for range 2 {
				got, reason, err := decides.Authorize(t.Context(), tc.attributes)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]any{tc.want, tc.wantReason}, []any{got, reason}); diff != "" {
					t.Errorf("decision differs (-want +got):\n%s", diff)
				}
			}
			if asked := c.asked.Load(); asked != tc.wantAsked {
				t.Errorf("the cluster was asked %d times, wanted is %d", asked, tc.wantAsked)
			}
		})
	}
}

// TestSelectorsAreAskedAboutLast lists by many selectors, each twice.
func TestSelectorsAreAskedAboutLast(t *testing.T) {
	list := func(verb, namespace string, byField fields.Selector, byLabel labels.Selector) authorizer.AttributesRecord {
		requirements, _ := byLabel.Requirements()
		return authorizer.AttributesRecord{
			Verb: verb, APIGroup: "lab.test", Resource: "gadgets", Namespace: namespace, ResourceRequest: true,
			FieldSelectorRequirements: byField.Requirements(), LabelSelectorRequirements: requirements,
		}
	}
	var selected, everything []authorizer.AttributesRecord
	for _, value := range []string{"a", "b", "c", "d"} {
		selected = append(selected,
			list("list", "", fields.OneTermEqualSelector("spec.node", value), labels.Everything()),
			list("list", "", fields.Everything(), labels.SelectorFromSet(labels.Set{"app": value})))
	}
	for _, verb := range []string{"list", "watch", "deletecollection"} {
		everything = append(everything, list(verb, "n", fields.OneTermEqualSelector("spec.node", "a"), labels.Everything()))
	}
	unreadable := list("list", "", fields.Everything(), labels.Everything())
	unreadable.FieldSelectorParsingErr = errors.New("unreadable")
	for name, tc := range map[string]struct {
		user      string
		requests  []authorizer.AttributesRecord
		want      authorizer.Decision
		wantAsked int64
	}{
		"who may list everything":              {"ann", selected, authorizer.DecisionAllow, 1},
		"who is denied all but a selector":     {"dee", selected, authorizer.DecisionAllow, 1 + 8},
		"where the wide question fails":        {"eve", selected[:1], authorizer.DecisionAllow, 4 + 1},
		"who may list by selector only":        {"sue", selected, authorizer.DecisionAllow, 1 + 8},
		"who may not list":                     {"ben", selected, authorizer.DecisionNoOpinion, 1 + 8},
		"every verb is a question":             {"ann", everything, authorizer.DecisionAllow, 3},
		"a selector that cannot be read":       {"ann", []authorizer.AttributesRecord{unreadable}, authorizer.DecisionAllow, 1},
		"no selector, who may list by it only": {"sue", []authorizer.AttributesRecord{list("list", "", fields.Everything(), labels.Everything())}, authorizer.DecisionNoOpinion, 1},
		"no selector, who may list everything": {"ann", []authorizer.AttributesRecord{list("list", "", fields.Everything(), labels.Everything())}, authorizer.DecisionAllow, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			decides := delegated(t, c)
			for range 2 {
				for i, request := range tc.requests {
					request.User = &user.DefaultInfo{Name: tc.user}
					if got, _, err := decides.Authorize(t.Context(), request); err != nil || got != tc.want {
						t.Errorf("request %d: %v, %v, want %v", i, got, err, tc.want)
					}
					if got := decides.ConditionsAwareAuthorize(t.Context(), request); got.IsAllow() != (tc.want == authorizer.DecisionAllow) {
						t.Errorf("request %d: %v with conditions, want %v", i, got, tc.want)
					}
				}
			}
			if asked := c.asked.Load(); asked != tc.wantAsked {
				t.Errorf("the cluster was asked %d times, wanted is %d", asked, tc.wantAsked)
			}
		})
	}
}

// Every object is a question of its own, and a client that counts its requests would hold them up.
func TestQuestionsAreNotLimited(t *testing.T) {
	o := NewAuthorizationOptions()
	o.completeDelegation(newCluster(t).kubeconfig)
	reviews, err := o.clusterClient()
	if err != nil {
		t.Fatal(err)
	}
	if reviews.AuthorizationV1().RESTClient().GetRateLimiter() != nil {
		t.Error("the client for SubjectAccessReviews has a limit")
	}
	config := &rest.Config{Host: "localhost"}
	admission, _, err := clusterClients(config)
	if err != nil {
		t.Fatal(err)
	}
	if admission.CoreV1().RESTClient().GetRateLimiter() != nil {
		t.Error("the client for admission has a limit")
	}
	if config.QPS != 0 {
		t.Error("the configuration of others is changed")
	}
}

func TestQuestionsAreLimitedByFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		qps       float32
		burst     int
		timeout   time.Duration
		wantQPS   float32
		wantBurst int
		wantError string
	}{
		"by default":          {timeout: time.Second},
		"a negative limit":    {qps: -1, timeout: time.Second},
		"a limit":             {qps: 100, timeout: time.Second, wantQPS: 100, wantBurst: 200},
		"a small limit":       {qps: 0.1, timeout: time.Second, wantQPS: 0.1, wantBurst: 1},
		"a limit and a burst": {qps: 100, burst: 7, timeout: time.Second, wantQPS: 100, wantBurst: 7},
		"a burst alone":       {burst: 7, timeout: time.Second, wantError: "--authorization-burst needs --authorization-qps"},
		"a negative burst":    {qps: 1, burst: -7, timeout: time.Second, wantError: "--authorization-burst is -7"},
		"no time":             {wantError: "--authorization-timeout is 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewAuthorizationOptions()
			o.QPS, o.Burst, o.Delegating.ClientTimeout = tc.qps, tc.burst, tc.timeout
			o.completeDelegation(newCluster(t).kubeconfig)
			if errs := o.Validate(false); len(errs) != 0 || tc.wantError != "" {
				if len(errs) != 1 || tc.wantError == "" || !strings.Contains(errs[0].Error(), tc.wantError) {
					t.Errorf("got %v, want one error with %q", errs, tc.wantError)
				}
				return
			}
			config, err := o.clientConfig()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]any{max(tc.wantQPS, 0), tc.wantBurst, tc.timeout}, []any{max(config.QPS, 0), config.Burst, config.Timeout}); diff != "" {
				t.Errorf("QPS, burst and timeout (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHangingCluster: who has no answer within the time is not allowed.
func TestHangingCluster(t *testing.T) {
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(func() {
		close(ended)
		silent.Close()
	})
	o := NewAuthorizationOptions()
	o.Delegating.ClientTimeout = 20 * time.Millisecond
	o.Delegating.WebhookRetryBackoff = &wait.Backoff{Steps: 2, Duration: time.Millisecond}
	o.Delegating.RemoteKubeConfigFile = filepath.Join(t.TempDir(), "kubeconfig")
	if err := env.WriteKubeconfig(o.Delegating.RemoteKubeConfigFile, &rest.Config{Host: silent.URL}); err != nil {
		t.Fatal(err)
	}
	var info genericapiserver.AuthorizationInfo
	if err := o.applyDelegated(&info); err != nil {
		t.Fatal(err)
	}
	decision, _, err := info.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}, Verb: "get", ResourceRequest: true})
	if decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("got decision %v and error %v", decision, err)
	}
}

// JSON costs both servers more for each question, of which there is one for each object.
func TestDelegatedAuthorizationAsksInProtobuf(t *testing.T) {
	c := newCluster(t)
	_, _, err := delegated(t, c).Authorize(t.Context(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "ann"}, Verb: "get", APIGroup: "lab.test", Resource: "gadgets", Name: "one", ResourceRequest: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any("application/vnd.kubernetes.protobuf"), c.contentType.Load()); diff != "" {
		t.Errorf("content type of a question (-want +got):\n%s", diff)
	}
}

// BenchmarkDelegatedAuthorization asks about one object after another, 16 at a time.
func BenchmarkDelegatedAuthorization(b *testing.B) {
	decides := delegated(b, newCluster(b))
	var next atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _, err := decides.Authorize(b.Context(), authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "ann"}, Verb: "get", APIGroup: "lab.test", Resource: "gadgets",
				Name: strconv.FormatInt(next.Add(1), 10), ResourceRequest: true,
			})
			if err != nil {
				b.Error(err)
			}
		}
	})
}
