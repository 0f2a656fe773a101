// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// questions are requests that depend on what a user may do. None changes anything.
func questions() map[string]request {
	one := gadgets(rightsNamespace) + "/one"
	merge := map[string]string{"Content-Type": "application/merge-patch+json"}
	return map[string]request{
		"get":                    {method: http.MethodGet, path: one},
		"get another":            {method: http.MethodGet, path: gadgets(rightsNamespace) + "/two"},
		"get its status":         {method: http.MethodGet, path: one + "/status"},
		"get its scale":          {method: http.MethodGet, path: one + "/scale"},
		"list":                   {method: http.MethodGet, path: gadgets(rightsNamespace)},
		"list one by field":      {method: http.MethodGet, path: gadgets(rightsNamespace) + "?fieldSelector=metadata.name%3Done"},
		"list by label":          {method: http.MethodGet, path: gadgets(rightsNamespace) + "?labelSelector=team%3Da"},
		"list another namespace": {method: http.MethodGet, path: gadgets(otherNamespace)},
		"list all namespaces":    {method: http.MethodGet, path: "/apis/GROUP/v1/gadgets"},
		"watch":                  {method: http.MethodGet, path: gadgets(rightsNamespace) + "?watch=1&resourceVersion=0", endless: true},
		"watch another":          {method: http.MethodGet, path: gadgets(otherNamespace) + "?watch=1&resourceVersion=0", endless: true},
		"create":                 {method: http.MethodPost, path: gadgets(rightsNamespace) + "?dryRun=All", body: gadget("new", "{}")},
		"update what is not":     {method: http.MethodPut, path: gadgets(rightsNamespace) + "/absent?dryRun=All", body: gadget("absent", "{}")},
		"patch":                  {method: http.MethodPatch, path: one + "?dryRun=All", body: `{"spec":{"size":2}}`, headers: merge},
		"patch its status":       {method: http.MethodPatch, path: one + "/status?dryRun=All", body: `{"status":{"size":2}}`, headers: merge},
		"delete what is not":     {method: http.MethodDelete, path: gadgets(rightsNamespace) + "/absent"},
		"delete all":             {method: http.MethodDelete, path: gadgets(rightsNamespace) + "?dryRun=All"},
		"discovery":              {method: http.MethodGet, path: "/apis/GROUP/v1"},
		"another path":           {method: http.MethodGet, path: "/metrics"},
		"a path below a check":   {method: http.MethodGet, path: "/healthz/../metrics"},
	}
}

// TestAuthorization asks the same of a resource of kube-apiserver and of an adopted one, where
// RBAC decides and where ABAC does.
func TestAuthorization(t *testing.T) {
	tests := map[string]struct {
		world *world
		// allowed is how many questions each user must be allowed, so that not everything is refused alike.
		allowed map[string]int
	}{
		"RBAC": {suite.rbac, map[string]int{"admin": 20, "ann": 7, "ben": 18, "dan": 2, "a reader": 1, "nobody": 1, "a proxy's certificate": 1}},
		"ABAC": {suite.abac, map[string]int{"admin": 20, "ann": 11, "ben": 20, "dan": 3, "a reader": 5, "nobody": 3, "a proxy's certificate": 3}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			seedRights(t, tc.world)
			for user, as := range map[string]who{
				"admin":    tc.world.adminUser(t),
				"ann":      tc.world.user(t, "ann"),
				"ben":      tc.world.user(t, "ben"),
				"dan":      tc.world.user(t, "dan"),
				"a reader": tc.world.user(t, "rita", "readers"),
				"nobody":   tc.world.user(t, "nobody-special"),
				// It is of the clients' authority, so it is only a user of that name.
				"a proxy's certificate": tc.world.user(t, "front-proxy-client").with(map[string]string{"X-Remote-User": "ben", "X-Remote-Group": "system:masters"}),
			} {
				t.Run(user, func(t *testing.T) {
					if got := compareQuestions(t, tc.world, as, questions()); got != tc.allowed[user] {
						t.Errorf("%d questions are allowed, want %d", got, tc.allowed[user])
					}
				})
			}
		})
	}
}

// seedRights creates the gadgets that are asked for.
func seedRights(t *testing.T, w *world) {
	t.Helper()
	for _, by := range []way{w.ways()[0], w.direct()} {
		for _, name := range []string{"one", "two"} {
			got := by.ask(t, w.adminUser(t), request{method: http.MethodPost, path: gadgets(rightsNamespace), body: gadget(name, `{"size":1}`)})
			if got.code != http.StatusCreated && got.code != http.StatusConflict {
				t.Fatalf("%s: %s", by.name, got.body)
			}
		}
	}
}

// compareQuestions returns how many questions are allowed.
func compareQuestions(t *testing.T, w *world, user who, asked map[string]request) (allowed int) {
	t.Helper()
	for name, question := range asked {
		var answers []string
		for _, by := range w.ways() {
			got := by.ask(t, user, question)
			// Past kube-apiserver, a refusal says besides whom annex has asked.
			answers = append(answers, strings.Replace(got.status(), ": kubernetes.io/webhook", "", 1))
			if by.name == "judge" && got.code != http.StatusForbidden && got.code != http.StatusUnauthorized {
				allowed++
			}
		}
		for i, by := range w.annexWays() {
			if diff := cmp.Diff(answers[0], answers[i+1]); diff != "" {
				t.Errorf("%s, %s (-kube-apiserver +annex):\n%s", name, by.name, diff)
			}
		}
	}
	return allowed
}

// TestImpersonationNeedsRights asks who may be impersonated: the cluster decides for annex, too.
func TestImpersonationNeedsRights(t *testing.T) {
	list := request{method: http.MethodGet, path: gadgets(rightsNamespace)}
	tests := map[string]struct {
		as   rest.ImpersonationConfig
		want int
	}{
		"a user":                  {rest.ImpersonationConfig{UserName: "ann"}, http.StatusOK},
		"another user":            {rest.ImpersonationConfig{UserName: "dan"}, http.StatusForbidden},
		"a user with a group":     {rest.ImpersonationConfig{UserName: "ann", Groups: []string{"readers"}}, http.StatusOK},
		"a user with masters":     {rest.ImpersonationConfig{UserName: "ann", Groups: []string{"system:masters"}}, http.StatusForbidden},
		"a user with a UID":       {rest.ImpersonationConfig{UserName: "ann", UID: "7"}, http.StatusOK},
		"a user with another UID": {rest.ImpersonationConfig{UserName: "ann", UID: "8"}, http.StatusForbidden},
		"a user with an extra":    {rest.ImpersonationConfig{UserName: "ann", Extra: map[string][]string{"scopes": {"view"}}}, http.StatusOK},
		"another value":           {rest.ImpersonationConfig{UserName: "ann", Extra: map[string][]string{"scopes": {"view", "edit"}}}, http.StatusForbidden},
		"another extra":           {rest.ImpersonationConfig{UserName: "ann", Extra: map[string][]string{"a/b": {"view"}}}, http.StatusForbidden},
		"a group without a user":  {rest.ImpersonationConfig{Groups: []string{"readers"}}, http.StatusBadRequest},
		"a UID without a user":    {rest.ImpersonationConfig{UID: "7"}, http.StatusBadRequest},
		"a service account":       {rest.ImpersonationConfig{UserName: "system:serviceaccount:" + rightsNamespace + ":default"}, http.StatusForbidden},
		"who is nobody":           {rest.ImpersonationConfig{UserName: "system:anonymous"}, http.StatusForbidden},
	}
	w := suite.rbac
	seedRights(t, w)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var judged string
			for _, by := range w.ways() {
				got := by.ask(t, w.user(t, "imp").as(tc.as), list)
				if by.name == "judge" {
					judged = got.status()
				}
				if got.code != tc.want || got.status() != judged {
					t.Errorf("%s: got %s, want %d as kube-apiserver: %s", by.name, got.status(), tc.want, judged)
				}
			}
		})
	}
}

// TestRevocation takes a right away and gives another: annex follows within the time that it remembers answers.
func TestRevocation(t *testing.T) {
	w := suite.rbac
	seedRights(t, w)
	list := request{method: http.MethodGet, path: gadgets(rightsNamespace)}
	eve := w.user(t, "eve")
	for _, by := range w.annexWays() {
		if got := by.ask(t, eve, list); got.code != http.StatusForbidden {
			t.Fatalf("%s, before: %s", by.name, got.status())
		}
	}
	if err := grantList(testContext(t), w, "eve"); err != nil {
		t.Fatal(err)
	}
	awaitCode(t, w, eve, list, http.StatusOK)
	if err := revokeList(testContext(t), w, "eve"); err != nil {
		t.Fatal(err)
	}
	awaitCode(t, w, eve, list, http.StatusForbidden)
}

func awaitCode(t *testing.T, w *world, user who, r request, want int) {
	t.Helper()
	for _, by := range w.ways() {
		client, host := by.client(t, user)
		await(t, fmt.Sprintf("code %d by %s", want, by.name), code(client, host, by.group, user, r, want))
	}
}
