// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// fakeDiscovery is a cluster with pods, bindings and workflows.
type fakeDiscovery struct {
	discovery.DiscoveryInterfaceWithContext
	minor string
	// emulated is the minor version that it emulates, or empty.
	emulated string
	err      error
	// asked counts the questions for the version, askedResources those for a group version.
	asked, askedResources int
}

func (f *fakeDiscovery) ServerVersionWithContext(context.Context) (*version.Info, error) {
	f.asked++
	info := &version.Info{Major: "1", Minor: f.minor, GitVersion: "v1." + f.minor + ".2"}
	if f.emulated != "" {
		info.EmulationMajor, info.EmulationMinor = "1", f.emulated
	}
	return info, f.err
}

func (f *fakeDiscovery) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	f.askedResources++
	list := metav1.Verbs{"get", "list", "watch"}
	switch groupVersion {
	case "v1":
		return &metav1.APIResourceList{APIResources: []metav1.APIResource{
			{Name: "pods", Namespaced: true, Verbs: list}, {Name: "bindings", Namespaced: true, Verbs: metav1.Verbs{"create"}}, {Name: "events", Namespaced: true, Verbs: list},
		}}, nil
	case "argoproj.io/v1alpha1":
		return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "workflows", Namespaced: true, Verbs: list}, {Name: "clusterworkflows", Verbs: list}}}, nil
	default:
		return nil, apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "", "", 0, true)
	}
}

func hosted(cluster *fakeDiscovery) *Explainer {
	config := newExplainer(func(http.ResponseWriter, *http.Request) {}).config
	config.Authorizer = allow{}
	config.Host = NewHost(cluster, testclock.NewFakePassiveClock(time.Unix(0, 0)))
	config.KeptHere = func(resource schema.GroupResource) bool { return resource.Group == "g" }
	for _, resource := range []string{"pods", "bindings", "events", "workflows", "clusterworkflows", "nothing", "things"} {
		for _, verb := range []string{"list", "watch"} {
			config.Authorizer.(allow)["ada "+verb+" "+resource] = true
		}
	}
	return New(config)
}

func TestHostKinds(t *testing.T) {
	const workflows = "/apis/argoproj.io/v1alpha1/workflows"
	for name, tc := range map[string]struct {
		path, minor string
		emulated    string
		want        string // server, version, source, rule, limit ignored, index
		wantAdvice  string
		wantWords   string   // the beginning of the explanation, unless it is that of the rule
		wantUnknown []string // the beginnings of what is said beyond what is always said
	}{
		"an agent's list": {
			path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500&resourceVersion=0", minor: "34",
			want: "Host v1.34.2 Cache Any limit ignored f:spec.nodeName", wantAdvice: "LimitIgnored", wantUnknown: []string{"Whether the cache is filled"},
		},
		"latest before 1.31": {path: "/api/v1/pods", minor: "30", want: "Host v1.30.2 Etcd LatestFromEtcd", wantAdvice: "UseCache UseInformer Paginate AskForNamespace"},
		"latest of a distribution": {
			path: "/api/v1/pods", minor: "31+", want: "Host v1.31+.2 Cache Latest", wantAdvice: "UseInformer Paginate AskForNamespace",
			wantUnknown: []string{"The version of its etcd"},
		},
		"an exact version": {
			path: "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", minor: "37", want: "Host v1.37.2 Unknown Exact", wantAdvice: "NewerVersion",
			wantUnknown: []string{"Whether the cache still has a snapshot"},
		},
		"a custom kind by a field": {
			path: workflows + "?fieldSelector=spec.x%3D1&resourceVersion=0", minor: "31", want: "Host v1.31.2 Cache Any", wantAdvice: "FieldNotSelectable",
			wantUnknown: []string{"Whether another API server", "Whether the cache is filled", "Whether the definition names spec.x"},
		},
		"a custom kind by its name": {
			path: workflows + "?fieldSelector=metadata.name%3Dx,metadata.namespace%3Dy&resourceVersion=0", minor: "24", want: "Host v1.24.2 Cache Any", wantAdvice: "AskForNamespace",
			wantUnknown: []string{"Whether another API server", "Whether the cache is filled"},
		},
		"a built-in kind by a field": {
			path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1,spec.x%3D1&resourceVersion=0", minor: "31", want: "Host v1.31.2 Cache Any f:spec.nodeName",
			wantUnknown: []string{"Whether the cache is filled", "Whether pods can be selected by spec.x"},
		},
		"an emulated version": {
			path: "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", minor: "34", emulated: "33", want: "Host v1.34.2 (emulating 1.33) Etcd ExactFromEtcd", wantAdvice: "NewerVersion",
		},
		"a version that emulates none other": {
			path: "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", minor: "34", emulated: "34", want: "Host v1.34.2 Unknown Exact", wantAdvice: "NewerVersion",
			wantUnknown: []string{"Whether the cache still has a snapshot"},
		},
		"a watch with objects, off": {
			path: "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", minor: "33", want: "Host v1.33.2 Unknown Watch",
			wantWords:   "By default this version refuses a watch that begins with the objects, as its feature gate WatchList is off. If it is on: The cache serves",
			wantUnknown: []string{"Whether the feature gate WatchList"},
		},
		"a watch with objects, unheard of": {
			path: "/api/v1/pods?watch=true&sendInitialEvents=true", minor: "24", want: "Host v1.24.2 Cache Watch",
			wantWords: "The cache serves watches. This version ignores sendInitialEvents and begins with the objects",
		},
		"a watch without objects, unheard of": {
			path: "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersion=7", minor: "24", want: "Host v1.24.2 Cache Watch",
			wantWords: "The cache serves watches. This version ignores sendInitialEvents and begins after resourceVersion",
		},
		"a version to come": {
			path: "/api/v1/events?limit=5", minor: "52", want: "Host v1.52.2 Etcd NoCache", wantAdvice: "AskForNamespace",
			wantUnknown: []string{"The rules of this version"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, err := hosted(&fakeDiscovery{minor: tc.minor, emulated: tc.emulated}).Explain(asker(t), &kubeannex.ListReviewSpec{Path: tc.path})
			if err != nil {
				t.Fatal(err)
			}
			got := []string{string(status.Server), status.ServerVersion, string(status.Source), status.Rule}
			if status.LimitIgnored {
				got = append(got, "limit ignored")
			}
			if status.Index != "" {
				got = append(got, status.Index)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			var reasons []string
			for _, advice := range status.Advice {
				reasons = append(reasons, advice.Reason)
			}
			if diff := cmp.Diff(tc.wantAdvice, strings.Join(reasons, " ")); diff != "" {
				t.Errorf("advice (-want +got):\n%s", diff)
			}
			checkUnknown(t, status.Unknown, tc.wantUnknown)
			if status.Estimate != nil || status.Actual != nil {
				t.Errorf("got figures: %+v", status)
			}
			if tc.wantWords == "" {
				tc.wantWords = explanation(annexed.Rule(status.Rule))
			}
			if !strings.HasPrefix(status.Explanation, tc.wantWords) || tc.wantWords == "" {
				t.Errorf("got the words %q, want %q", status.Explanation, tc.wantWords)
			}
		})
	}
}

func checkUnknown(t *testing.T, got, want []string) {
	t.Helper()
	for _, begin := range append([]string{"How many objects", "Flags of that server"}, want...) {
		found := false
		for _, sentence := range got {
			found = found || strings.HasPrefix(sentence, begin)
		}
		if !found {
			t.Errorf("nothing unknown begins with %q: %q", begin, got)
		}
	}
	if len(got) != len(want)+2 {
		t.Errorf("got %d sentences, want %d: %q", len(got), len(want)+2, got)
	}
}

func TestHostErrors(t *testing.T) {
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":7,"start":"a\u0000"}`))
	for name, tc := range map[string]struct {
		path    string
		analyze bool
		minor   string
		err     error
		want    string
	}{
		"a kind that is not there":  {path: "/api/v1/nothing", want: "the server could not find the requested resource"},
		"a group that is not there": {path: "/apis/x.io/v1/things", want: "the server could not find the requested resource"},
		"a kind without lists":      {path: "/api/v1/bindings", want: `list is not supported on resources of kind "bindings"`},
		"analyze": {
			path: "/api/v1/pods?limit=5", analyze: true,
			want: "pods are kept by the cluster, where annex has no right to list them: to measure it, run kubectl get --raw '/api/v1/pods?limit=5' yourself",
		},
		"malformed selector": {path: "/api/v1/pods?labelSelector=%21%21", want: "unable to parse requirement: found '!', expected: identifier"},
		"exact 0": {
			path: "/api/v1/pods?resourceVersion=0&resourceVersionMatch=Exact",
			want: `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`,
		},
		"version beside a page": {path: "/api/v1/pods?resourceVersion=7&continue=" + token, want: "specifying resource version is not allowed when using continue"},
		"malformed token":       {path: "/api/v1/pods?continue=x", want: "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"},
		"malformed version":     {path: "/api/v1/pods?resourceVersion=x", want: `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		"a field that no custom kind had": {
			path: "/apis/argoproj.io/v1alpha1/workflows?fieldSelector=metadata.name%3Da,spec.x%3D1", minor: "30", want: "field label not supported: spec.x",
		},
		"a field that none had, of a watch": {
			path: "/apis/argoproj.io/v1alpha1/workflows?watch=1&sendInitialEvents=1&fieldSelector=spec.x%3D1", minor: "24", want: "field label not supported: spec.x",
		},
		"the namespace of a kind without": {
			path: "/apis/argoproj.io/v1alpha1/clusterworkflows?fieldSelector=metadata.namespace%3Da", want: "field label not supported: metadata.namespace",
		},
		"no cluster": {path: "/api/v1/pods", err: context.DeadlineExceeded, want: "asking the cluster: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.minor == "" {
				tc.minor = "34"
			}
			_, err := hosted(&fakeDiscovery{minor: tc.minor, err: tc.err}).Explain(asker(t), &kubeannex.ListReviewSpec{Path: tc.path, Analyze: tc.analyze})
			status, ok := err.(*apierrors.StatusError) //nolint:errorlint // bare is what is promised
			if !ok {
				t.Fatalf("got %T %v, want a status", err, err)
			}
			if diff := cmp.Diff(tc.want, status.ErrStatus.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if tc.minor == "30" && !apierrors.IsBadRequest(err) {
				t.Errorf("got the reason %s, want a bad request", status.ErrStatus.Reason)
			}
		})
	}
}
