// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

const (
	settingsName = "extension-apiserver-authentication"
	proxyCAKey   = "requestheader-client-ca-file"
)

// load is a user who works through kube-apiserver without a pause.
type load struct {
	stop     context.CancelFunc
	done     chan struct{}
	requests atomic.Int64
	failures []string
}

func startLoad(t *testing.T, w *world) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel, done: make(chan struct{})}
	through := w.annexWays()[0]
	ben := w.user(t, "ben")
	client, host := through.client(t, ben)
	requests := [2]request{
		{method: http.MethodGet, path: gadgets(rightsNamespace)},
		{method: http.MethodPost, path: gadgets(rightsNamespace) + "?dryRun=All", body: gadget("new", "{}")},
	}
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			got, err := send(ctx, client, host, through.group, ben, requests[l.requests.Add(1)%2])
			switch {
			case ctx.Err() != nil:
			case err != nil:
				l.failures = append(l.failures, err.Error())
			case got.code >= http.StatusBadRequest:
				l.failures = append(l.failures, got.status())
			}
		}
	}()
	return l
}

// goOn waits for some more requests.
func (l *load) goOn(t *testing.T) {
	t.Helper()
	const some = 30
	before := l.requests.Load()
	await(t, "requests", func(context.Context) bool { return l.requests.Load() > before+some })
}

func (l *load) check(t *testing.T) {
	t.Helper()
	l.goOn(t)
	l.stop()
	<-l.done
	if len(l.failures) != 0 {
		t.Errorf("%d of %d requests failed, the first by %q", len(l.failures), l.requests.Load(), l.failures[0])
	}
}

// TestFrontProxyRotation replaces the authority of the front proxy and its certificate, with
// overlap, by the files of kube-apiserver alone. Nothing is restarted and no request fails.
func TestFrontProxyRotation(t *testing.T) {
	w := suite.abac
	authority, err := env.NewCA("annex-test-front-proxy-ca-2")
	if err != nil {
		t.Fatal(err)
	}
	former, next := w.host.FrontProxyPair(), certified(t, authority, frontProxy).with(asBen())
	earlier := who{pair: former, headers: asBen()}
	list := request{method: http.MethodGet, path: gadgets(rightsNamespace)}
	direct := func(user who, want int) {
		t.Helper()
		by := w.direct()
		client, host := by.client(t, user)
		await(t, "a front proxy to be known or forgotten", code(client, host, by.group, user, list, want))
	}
	direct(earlier, http.StatusOK)
	direct(next, http.StatusUnauthorized)
	load := startLoad(t, w)
	load.goOn(t)

	if err := w.host.WriteFrontProxyCA(append(w.host.FrontProxyCA().PEM(), authority.PEM()...)); err != nil {
		t.Fatal(err)
	}
	direct(next, http.StatusOK)
	direct(earlier, http.StatusOK)
	load.goOn(t)

	loaded := func() int {
		return strings.Count(w.host.APIServers[0].Log(), `Loaded a new cert/key pair" name="aggregator-proxy-cert`)
	}
	loads := loaded()
	if err := w.host.WriteFrontProxyPair(next.pair); err != nil {
		t.Fatal(err)
	}
	await(t, "kube-apiserver to show the new certificate", func(context.Context) bool { return loaded() > loads })
	load.goOn(t)

	if err := w.host.WriteFrontProxyCA(authority.PEM()); err != nil {
		t.Fatal(err)
	}
	forgetAuthority(t, w, w.host.FrontProxyCA())
	direct(earlier, http.StatusUnauthorized)
	direct(next, http.StatusOK)
	load.check(t)
}

// forgetAuthority makes kube-apiserver write its settings anew: it never takes anything
// out of them, and writes those of its files where there are none.
func forgetAuthority(t *testing.T, w *world, authority *env.CA) {
	t.Helper()
	settings := w.admin.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	await(t, "settings without the former authority", func(ctx context.Context) bool {
		current, err := settings.Get(ctx, settingsName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		if !bytes.Contains([]byte(current.Data[proxyCAKey]), bytes.TrimSpace(authority.PEM())) {
			return true
		}
		err = settings.Delete(ctx, settingsName, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(current.UID))})
		return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err)
	})
}

// TestHeaderNames reproduces the other part of A37: annex follows the names of the headers, and of the
// proxies, that the cluster's settings tell, without a restart.
func TestHeaderNames(t *testing.T) {
	awaitRecorder(t)
	w := suite.rbac
	release := holdSettings(t, w.admin)
	judge, through, direct := w.ways()[0], w.annexWays()[0], w.direct()
	impersonated := w.adminUser(t).as(rest.ImpersonationConfig{UserName: "ann", UID: "7"})
	proxied := who{pair: w.host.FrontProxyPair(), headers: map[string]string{
		"X-Remote-User": "ann", "X-Other-User": "ben", "X-Remote-Group": "system:authenticated", "X-Remote-Uid": "7", "X-Other-Uid": "9",
	}}
	unknown := certified(t, w.host.FrontProxyCA(), "another-proxy").with(proxied.headers)
	expect := func(user, uid string, proxy who) {
		t.Helper()
		await(t, "user "+user+" with UID "+uid, func(context.Context) bool {
			info, _, _ := suite.recorder.seen(t, direct, proxy)
			return info.Username == user && info.UID == uid
		})
	}
	expectUID := func(by way, want string) {
		t.Helper()
		if info, got, asked := suite.recorder.seen(t, by, impersonated); !asked || info.UID != want {
			t.Errorf("%s: the UID is %q, want %q: %s", by.name, info.UID, want, got.status())
		}
	}
	expect("ann", "7", proxied)
	setEntry(t, w.admin, "requestheader-uid-headers", nil)
	expect("ann", "", proxied)
	expectUID(through, "")
	expectUID(judge, "7")
	setEntry(t, w.admin, "requestheader-uid-headers", []string{"X-Other-Uid"})
	expect("ann", "9", proxied)
	setEntry(t, w.admin, "requestheader-uid-headers", []string{"X-None", "X-Remote-Uid", "X-Other-Uid"})
	expect("ann", "7", proxied)
	expectUID(through, "7")
	setEntry(t, w.admin, "requestheader-username-headers", []string{"X-Other-User"})
	expect("ben", "7", proxied)
	setEntry(t, w.admin, "requestheader-allowed-names", []string{"another-proxy"})
	expect("ben", "7", unknown)
	expect("", "", proxied)
	release()
	expect("ann", "7", proxied)
	expect("", "", unknown)
	await(t, "kube-apiserver to find annex again", func(context.Context) bool {
		info, _, _ := suite.recorder.seen(t, through, impersonated)
		return info.UID == "7"
	})
}

// holdSettings keeps kube-apiserver from writing its settings back, until release is called.
func holdSettings(t *testing.T, client kubernetes.Interface) (release func()) {
	t.Helper()
	const name = "hold-settings"
	ctx := testContext(t)
	fail, everything := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	policies, bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: &everything, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					ResourceNames: []string{settingsName},
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "request.userInfo.username != 'system:apiserver'"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bindings.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitHold(t)
	return func() {
		t.Helper()
		ctx := testContext(t)
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := policies.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		// It is written anew, with what kube-apiserver was started with.
		if err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(ctx, settingsName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// awaitHold waits until kube-apiserver itself may not write the settings.
func awaitHold(t *testing.T) {
	t.Helper()
	config := suite.rbac.host.ConfigWith(suite.rbac.adminUser(t).pair)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:apiserver", Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	settings := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	await(t, "the policy", func(ctx context.Context) bool {
		current, err := settings.Get(ctx, settingsName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		_, err = settings.Update(ctx, current, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err)
	})
}

// setEntry changes one entry of the settings. Without values it is taken out.
func setEntry(t *testing.T, client kubernetes.Interface, key string, values []string) {
	t.Helper()
	settings := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	var current *corev1.ConfigMap
	current, err := settings.Get(testContext(t), settingsName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(current.Data, key)
	if values != nil {
		data, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		current.Data[key] = string(data)
	}
	if _, err := settings.Update(testContext(t), current, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
