// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// cluster answers SubjectAccessReviews: ann may do everything, nobody else anything.
type cluster struct {
	kubeconfig string
	asked      atomic.Int64
}

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	c := &cluster{kubeconfig: filepath.Join(tb.TempDir(), "kubeconfig")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		c.asked.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: review.Spec.User == "ann", Reason: "says the cluster"}
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
