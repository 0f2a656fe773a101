// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
)

// step is a request of a series; later ones find what earlier ones have left.
type step struct {
	name string
	user string
	request
}

func auditSteps(namespace string) []step {
	merge := map[string]string{"Content-Type": "application/merge-patch+json"}
	apply := map[string]string{"Content-Type": "application/apply-patch+yaml"}
	list := gadgets(namespace)
	return []step{
		{"create", "admin", request{method: http.MethodPost, path: list, body: gadget("a", `{"size":1}`)}},
		{"create again", "admin", request{method: http.MethodPost, path: list, body: gadget("a", `{}`)}},
		{"create what is invalid", "admin", request{method: http.MethodPost, path: list, body: gadget("b", `{"size":"many"}`)}},
		{"create what is no JSON", "admin", request{method: http.MethodPost, path: list, body: `{`}},
		{"get", "admin", request{method: http.MethodGet, path: list + "/a"}},
		{"get what is not", "admin", request{method: http.MethodGet, path: list + "/absent"}},
		{"list", "admin", request{method: http.MethodGet, path: list + "?limit=5"}},
		{"watch", "admin", request{method: http.MethodGet, path: list + "?resourceVersion=0&timeoutSeconds=1&watch=1"}},
		{"patch", "admin", request{method: http.MethodPatch, path: list + "/a", body: `{"spec":{"size":2}}`, headers: merge}},
		{"patch the status", "admin", request{method: http.MethodPatch, path: list + "/a/status", body: `{"status":{"size":2}}`, headers: merge}},
		{"scale", "admin", request{method: http.MethodPatch, path: list + "/a/scale", body: `{"spec":{"replicas":3}}`, headers: merge}},
		{"apply", "admin", request{method: http.MethodPatch, path: list + "/a?fieldManager=m", body: gadget("a", `{"color":"red"}`), headers: apply}},
		{"get as a stranger", "stranger", request{method: http.MethodGet, path: list + "/a"}},
		{"create as a stranger", "stranger", request{method: http.MethodPost, path: list, body: gadget("c", `{}`)}},
		{"delete", "admin", request{method: http.MethodDelete, path: list + "/a", body: `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`}},
		{"delete all", "admin", request{method: http.MethodDelete, path: list}},
	}
}

// TestAuditEvents reproduces A38: the same requests leave the same events at annex as at
// kube-apiserver for a resource of its own, stage by stage and by level.
func TestAuditEvents(t *testing.T) {
	w := suite.rbac
	actors := map[string]who{"admin": w.adminUser(t), "stranger": w.user(t, "stranger", "readers")}
	for _, namespace := range auditNamespaces() {
		t.Run(namespace, func(t *testing.T) {
			t.Parallel() // a watch takes a second
			for _, by := range w.annexWays() {
				id := func(server string, step int) string {
					return fmt.Sprintf("%s-%s-%s-%d", server, by.name, namespace, step)
				}
				steps := auditSteps(namespace)
				for n, s := range steps {
					judged := w.ways()[0].ask(t, actors[s.user], withID(s.request, id("judge", n)))
					got := by.ask(t, actors[s.user], withID(s.request, id("annex", n)))
					if judged.status() != got.status() {
						t.Fatalf("%s, %s: got %s, kube-apiserver %s", s.name, by.name, got.status(), judged.status())
					}
					if ids := got.header.Values("Audit-Id"); len(ids) != 1 || ids[0] != id("annex", n) {
						t.Errorf("%s, %s: the answer has the IDs %q", s.name, by.name, ids)
					}
				}
				for n, s := range steps {
					if s.user == "stranger" && by.name == "through" {
						continue // kube-apiserver refuses it
					}
					compareEvents(t, s.name+", "+by.name, id("judge", n), id("annex", n), namespace == auditNone)
				}
			}
		})
	}
}

// withID adds an ID to a request.
func withID(r request, id string) request {
	headers := map[string]string{"Audit-ID": id}
	maps.Copy(headers, r.headers)
	r.headers = headers
	return r
}

func compareEvents(t *testing.T, name, judgedID, annexID string, none bool) {
	t.Helper()
	if none {
		if got := append(suite.annexAudit.logged(t, annexID), suite.annexAudit.ofID(annexID)...); len(got) != 0 {
			t.Errorf("%s: %d events, want none", name, len(got))
		}
		return
	}
	want, got := normal(t, suite.hostAudit.ended(t, judgedID)), normal(t, suite.annexAudit.ended(t, annexID))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-kube-apiserver +annex):\n%s", name, diff)
	}
}

// normal takes away from events what differs between any two requests.
func normal(t *testing.T, events []auditv1.Event) []auditv1.Event {
	t.Helper()
	var normalized []auditv1.Event
	for _, event := range events {
		data, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		var copied auditv1.Event
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(data), judgeGroup, "lab.annex.test")), &copied); err != nil {
			t.Fatal(err)
		}
		copied.AuditID = ""
		copied.RequestReceivedTimestamp.Reset()
		copied.StageTimestamp.Reset()
		copied.SourceIPs = nil // kube-apiserver adds its own
		if copied.ObjectRef != nil {
			copied.ObjectRef.UID, copied.ObjectRef.ResourceVersion = "", ""
		}
		for _, body := range []*runtime.Unknown{copied.RequestObject, copied.ResponseObject} {
			normalizeBody(t, body)
		}
		if status := copied.ResponseStatus; status != nil && status.Details != nil {
			status.Details.UID = ""
		}
		maps.DeleteFunc(copied.Annotations, func(key, _ string) bool {
			// The first are of slow requests only, the second say how annex read.
			return strings.HasPrefix(key, "apiserver.latency.k8s.io/") || strings.HasPrefix(key, "kubeannex.io/")
		})
		normalized = append(normalized, copied)
	}
	return normalized
}

func normalizeBody(t *testing.T, body *runtime.Unknown) {
	t.Helper()
	if body == nil {
		return
	}
	var content map[string]any
	if err := json.Unmarshal(body.Raw, &content); err != nil {
		t.Fatalf("%v: %s", err, body.Raw)
	}
	object := unstructured.Unstructured{Object: content}
	items, _, _ := unstructured.NestedSlice(content, "items")
	for _, item := range items {
		forget(item.(map[string]any))
	}
	if items != nil {
		content["items"] = items
	}
	forget(object.Object)
	unstructured.RemoveNestedField(content, "details", "uid")
	raw, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	body.Raw = raw
}

func forget(object map[string]any) {
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	fields, _, _ := unstructured.NestedSlice(object, "metadata", "managedFields")
	for _, entry := range fields {
		delete(entry.(map[string]any), "time")
	}
	if fields != nil {
		unstructured.SetNestedSlice(object, fields, "metadata", "managedFields") //nolint:errcheck // it is there
	}
}

// TestAuditOfImpersonation: the server that is asked to impersonate records both users,
// and the one behind it the user who is meant. The events have one ID.
func TestAuditOfImpersonation(t *testing.T) {
	w := suite.rbac
	extra := map[string]authenticationv1.ExtraValue{"a/b": {"x"}}
	ben := authenticationv1.UserInfo{Username: "ben", UID: "7", Groups: []string{"readers", "system:authenticated"}, Extra: extra}
	admin := w.adminUser(t)
	as := admin.as(rest.ImpersonationConfig{UserName: "ben", UID: "7", Groups: []string{"readers"}, Extra: map[string][]string{"a/b": {"x"}}})
	create := request{method: http.MethodPost, path: gadgets(auditRequestResponse) + "?dryRun=All", body: gadget("impersonated", "{}")}
	type people struct {
		User         string
		Impersonated *authenticationv1.UserInfo
		Stage        auditv1.Stage
	}
	both := func(user string, impersonated *authenticationv1.UserInfo) []people {
		return []people{{user, impersonated, auditv1.StageRequestReceived}, {user, impersonated, auditv1.StageResponseComplete}}
	}
	// The first stage is before impersonation.
	asked := both("admin", &ben)
	asked[0].Impersonated = nil
	in := func(trail *auditTrail, id string) (found []people) {
		for _, event := range trail.ended(t, id) {
			found = append(found, people{event.User.Username, event.ImpersonatedUser, event.Stage})
		}
		return found
	}
	want := map[string]struct{ host, annex []people }{
		"judge": {host: asked}, "through": {asked, both("ben", nil)}, "direct": {annex: asked},
	}
	for _, by := range w.ways() {
		t.Run(by.name, func(t *testing.T) {
			id := "impersonation-" + by.name
			by.ask(t, as, withID(create, id))
			if want[by.name].host != nil {
				if diff := cmp.Diff(want[by.name].host, in(suite.hostAudit, id)); diff != "" {
					t.Errorf("events of kube-apiserver (-want +got):\n%s", diff)
				}
			}
			if want[by.name].annex == nil {
				return
			}
			if diff := cmp.Diff(want[by.name].annex, in(suite.annexAudit, id)); diff != "" {
				t.Errorf("events of annex (-want +got):\n%s", diff)
			}
			if by.name == "through" {
				event := suite.annexAudit.ended(t, id)[0]
				if diff := cmp.Diff(ben, event.User); diff != "" {
					t.Errorf("the user at annex (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestAuditOfFailures: what is refused before it is known who asks is recorded as kube-apiserver records it.
func TestAuditOfFailures(t *testing.T) {
	w := suite.rbac
	judge, direct := w.ways()[0], w.direct()
	list := request{method: http.MethodGet, path: gadgets(auditRequestResponse)}
	for name, user := range map[string]who{
		"token":         {token: "not-a-token"},
		"impersonation": w.user(t, "stranger").as(rest.ImpersonationConfig{UserName: "admin", Groups: []string{"system:masters"}}),
		"anonymous":     {},
	} {
		t.Run(name, func(t *testing.T) {
			judge.ask(t, user, withID(list, "judge-failed-"+name))
			direct.ask(t, user, withID(list, "annex-failed-"+name))
			compareEvents(t, name, "judge-failed-"+name, "annex-failed-"+name, false)
		})
	}
}

// TestAuditOfAnnex: what annex alone serves is recorded, too.
func TestAuditOfAnnex(t *testing.T) {
	const group = "/apis/kubeannex.io/v1alpha1"
	w := suite.rbac
	review := `{"apiVersion":"kubeannex.io/v1alpha1","kind":"ListReview","spec":{"path":"/apis/lab.annex.test/v1/gadgets","analyze":true}}`
	annexed := `{"apiVersion":"kubeannex.io/v1alpha1","kind":"AnnexedGroup","metadata":{"name":"absent.annex.test"}}`
	for name, tc := range map[string]struct {
		request
		wantResource, wantSubresource string
		// wantBody says that what is sent is recorded.
		wantBody bool
	}{
		"explain":        {request: request{method: http.MethodPost, path: group + "/listreviews", body: review}, wantResource: "listreviews", wantBody: true},
		"profiles":       {request: request{method: http.MethodGet, path: group + "/listprofiles"}, wantResource: "listprofiles"},
		"groups":         {request: request{method: http.MethodGet, path: group + "/annexedgroups"}, wantResource: "annexedgroups"},
		"adopt":          {request: request{method: http.MethodPost, path: group + "/annexedgroups?dryRun=All", body: annexed}, wantResource: "annexedgroups", wantBody: true},
		"import":         {request: request{method: http.MethodPost, path: group + "/annexedgroups/absent.annex.test/import"}, wantResource: "annexedgroups", wantSubresource: "import"},
		"digest":         {request: request{method: http.MethodGet, path: group + "/annexedgroups/absent.annex.test/digest"}, wantResource: "annexedgroups", wantSubresource: "digest"},
		"replica":        {request: request{method: http.MethodGet, path: group + "/annexedgroups/absent.annex.test/replica"}, wantResource: "annexedgroups", wantSubresource: "replica"},
		"metrics":        {request: request{method: http.MethodGet, path: "/metrics"}},
		"discovery":      {request: request{method: http.MethodGet, path: group}},
		"profiling data": {request: request{method: http.MethodGet, path: "/debug/pprof/cmdline"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := "own-" + strings.ReplaceAll(name, " ", "-")
			got := w.direct().ask(t, w.adminUser(t), withID(tc.request, id))
			if ids := got.header.Values("Audit-Id"); len(ids) != 1 || ids[0] != id {
				t.Errorf("the answer has the IDs %q", ids)
			}
			events := suite.annexAudit.ended(t, id)
			first, last := events[0], events[len(events)-1]
			if first.Stage != auditv1.StageRequestReceived || last.ResponseStatus == nil || int(last.ResponseStatus.Code) != got.code || last.User.Username != "admin" {
				t.Errorf("answered with %d, recorded is %+v and then %+v", got.code, first, last)
			}
			if tc.wantResource == "" {
				return
			}
			if last.ObjectRef == nil || last.ObjectRef.Resource != tc.wantResource || last.ObjectRef.Subresource != tc.wantSubresource {
				t.Errorf("the object is %+v, want %s/%s", last.ObjectRef, tc.wantResource, tc.wantSubresource)
			}
			if tc.wantBody && (last.RequestObject == nil || last.ResponseObject == nil) {
				t.Errorf("a body is missing: %s", got.body)
			}
		})
	}
}
