// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// podToken returns a token of a service account that belongs to a pod, which adds extras about it.
func (w *world) podToken(t *testing.T) string {
	t.Helper()
	const name = "pod-robot"
	w.token(t, name) // makes the account
	ctx := testContext(t)
	pods := w.admin.CoreV1().Pods(identityNamespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: name, NodeName: "node-that-is-not",
			Containers: []corev1.Container{{Name: "one", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		pod, err = pods.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	request, err := w.admin.CoreV1().ServiceAccounts(identityNamespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// TestUserInfo reproduces A37: a webhook is told the same about a user of an adopted
// resource as about one of kube-apiserver's own, whichever way the request comes.
func TestUserInfo(t *testing.T) {
	awaitRecorder(t)
	w := suite.rbac
	as := func(name, uid string, groups []string, extra map[string][]string) who {
		return w.adminUser(t).as(rest.ImpersonationConfig{UserName: name, UID: uid, Groups: groups, Extra: extra})
	}
	tests := map[string]struct {
		who
		// want is the part that a request must carry, so that not all of it is lost alike.
		want authenticationv1.UserInfo
	}{
		"a user": {w.user(t, "cid", "readers", "writers"), authenticationv1.UserInfo{Username: "cid"}},
		"a token": {
			who{token: w.token(t, "robot")},
			authenticationv1.UserInfo{Username: "system:serviceaccount:identity:robot"},
		},
		"a token of a pod": {
			who{token: w.podToken(t)},
			authenticationv1.UserInfo{
				Username: "system:serviceaccount:identity:pod-robot",
				Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"pod-robot"}},
			},
		},
		"a name alone":        {as("ann", "", nil, nil), authenticationv1.UserInfo{Username: "ann"}},
		"a UID":               {as("ann", "7", nil, nil), authenticationv1.UserInfo{Username: "ann", UID: "7"}},
		"an odd UID":          {as("ann", "ünïque/7 %41,\"x\"", nil, nil), authenticationv1.UserInfo{Username: "ann", UID: "ünïque/7 %41,\"x\""}},
		"groups":              {as("ann", "", []string{"b", "a", "a"}, nil), authenticationv1.UserInfo{Username: "ann"}},
		"odd names":           {as("Änne, \"the\" %41 one", "", []string{"g, h", "größe", "%2C"}, nil), authenticationv1.UserInfo{Username: "Änne, \"the\" %41 one"}},
		"a service account":   {as("system:serviceaccount:identity:default", "7", nil, nil), authenticationv1.UserInfo{Username: "system:serviceaccount:identity:default"}},
		"who is nobody":       {as("system:anonymous", "", nil, nil), authenticationv1.UserInfo{Username: "system:anonymous"}},
		"nobody with a group": {as("system:anonymous", "", []string{"system:unauthenticated"}, nil), authenticationv1.UserInfo{Username: "system:anonymous"}},
		"extras": {
			as("ann", "7", []string{"g"}, map[string][]string{"a/bé": {"x"}, "scopes": {"view", "edit", "view"}}),
			authenticationv1.UserInfo{Username: "ann", UID: "7", Extra: map[string]authenticationv1.ExtraValue{"a/bé": {"x"}, "scopes": {"view", "edit", "view"}}},
		},
		"odd keys of extras": {
			as("ann", "", nil, map[string][]string{"https://example.com/a?b=c&d": {"1"}, "per%cent": {"2"}, "per%25cent": {"3"}, "with space": {"4"}, "ünïcode/鍵": {"5"}, "a_b.c-d~e": {"6"}}),
			authenticationv1.UserInfo{Username: "ann", Extra: map[string]authenticationv1.ExtraValue{
				"https://example.com/a?b=c&d": {"1"}, "per%cent": {"2"}, "per%25cent": {"3"}, "with space": {"4"}, "ünïcode/鍵": {"5"}, "a_b.c-d~e": {"6"},
			}},
		},
		"odd values of extras": {
			as("ann", "", nil, map[string][]string{"v": {"", "a,b", "ä ö", "%41", "  inner  space", "x\ty", `"q"`}}),
			authenticationv1.UserInfo{Username: "ann"},
		},
		"a key in capitals": {as("ann", "", nil, map[string][]string{"Scopes": {"view"}, "A/B": {"edit"}}), authenticationv1.UserInfo{Username: "ann"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var judged authenticationv1.UserInfo
			for _, by := range w.ways() {
				info, got, asked := suite.recorder.seen(t, by, tc.who)
				if !asked {
					t.Fatalf("%s: the webhook was not asked: %s", by.name, got.body)
				}
				if by.name == "judge" {
					judged = info
					checkUserInfo(t, tc.want, info)
				}
				if diff := cmp.Diff(judged, info); diff != "" {
					t.Errorf("%s (-kube-apiserver +annex):\n%s", by.name, diff)
				}
			}
		})
	}
}

// checkUserInfo demands a name, and the UID and the extras that are wanted.
func checkUserInfo(t *testing.T, want, got authenticationv1.UserInfo) {
	t.Helper()
	got.Groups = nil
	if want.UID == "" {
		got.UID = ""
	}
	carried := got.Extra
	got.Extra = nil
	for key := range want.Extra {
		if got.Extra == nil {
			got.Extra = map[string]authenticationv1.ExtraValue{}
		}
		got.Extra[key] = carried[key]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kube-apiserver's own resource (-want +got):\n%s", diff)
	}
}
