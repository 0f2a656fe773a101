// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/pkg/apiserver"
	"github.com/kubeannex/annex/pkg/serving"
)

const (
	// settingsName is the ConfigMap in kube-system in which kube-apiserver tells whom it
	// trusts (k8s.io/kubernetes pkg/controlplane/controller/clusterauthenticationtrust).
	settingsName = "extension-apiserver-authentication"
	// clientCAKey, proxyCAKey and proxyUserKey are its entries that matter here.
	clientCAKey  = "client-ca-file"
	proxyCAKey   = "requestheader-client-ca-file"
	proxyUserKey = "requestheader-username-headers"

	// trustHookName is the name of the start of clusterTrust in /readyz.
	trustHookName = "cluster-trust"
	// trustPatience bounds one question for the ConfigMap, trustRetry is the time until the next one.
	trustPatience, trustRetry = 10 * time.Second, time.Second
	// trustAbsence is how long the ConfigMap has to be missing to count as empty. A
	// kube-apiserver that starts makes it within seconds, one without authorities never
	// (syncConfigMap in the package above).
	trustAbsence = 30 * time.Second
)

// clusterTrust knows whether the server has learned whom the cluster trusts.
// Upstream reads the authorities of a ConfigMap only after the port is served, and
// takes everybody for anonymous until then (k8s.io/apiserver
// pkg/server/dynamiccertificates/configmap_cafile_content.go, RunOnce);
// kube-apiserver reads its own from files before.
type clusterTrust struct {
	settings func(context.Context) (*corev1.ConfigMap, error)
	// keys are the entries with authorities that are not read from files.
	keys []string
	// authorities are those that the server trusts now, userHeaders the headers in which a front proxy names a user.
	authorities func() []byte
	userHeaders func() []string
	metrics     *serving.Metrics
	// learned tells the port that reason is nil.
	learned func()

	changed chan struct{}
	// reason is why the server has not learned it, nil when it has.
	reason atomic.Pointer[error]
	// absentSince is when the settings were found missing, zero when they were not the last time. It belongs to run.
	absentSince time.Time
}

// waitForTrust makes the server wait for what it reads from the cluster's settings.
// Authentication must be configured. It does nothing where all is read from files,
// and where an operator allows the server to go on without.
func (o *AuthenticationOptions) waitForTrust(config *apiserver.Config) error {
	generic := &config.GenericConfig.Config
	keys := o.keysFromCluster()
	if len(keys) == 0 || generic.SecureServing.ClientCA == nil {
		return nil
	}
	clientConfig, err := clusterConfig(o.Delegating.RemoteKubeConfigFile)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(clientConfig)
	if err != nil {
		return err
	}
	trust := newClusterTrust(&generic.Authentication, generic.SecureServing, keys)
	trust.metrics = config.ExtraConfig.ServingMetrics
	trust.settings = func(ctx context.Context) (*corev1.ConfigMap, error) {
		return client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, settingsName, metav1.GetOptions{})
	}
	config.ExtraConfig.Trust = trust.known
	return generic.AddPostStartHook(trustHookName, func(hook genericapiserver.PostStartHookContext) error {
		go trust.run(hook)
		return nil
	})
}

// keysFromCluster are the authorities that no flag gives.
func (o *AuthenticationOptions) keysFromCluster() []string {
	if o.Delegating.SkipInClusterLookup || o.Delegating.TolerateInClusterLookupFailure {
		return nil
	}
	var keys []string
	if o.Delegating.ClientCert.ClientCA == "" {
		keys = append(keys, clientCAKey)
	}
	if o.Delegating.RequestHeader.ClientCAFile == "" {
		keys = append(keys, proxyCAKey)
	}
	return keys
}

// newClusterTrust makes the port keep the names of authorities to itself until all are known.
func newClusterTrust(authentication *genericapiserver.AuthenticationInfo, port *genericapiserver.SecureServingInfo, keys []string) *clusterTrust {
	trust := &clusterTrust{keys: keys, changed: make(chan struct{}, 1)}
	trust.authorities = port.ClientCA.CurrentCABundleContent
	trust.userHeaders = func() []string { return nil }
	if proxy := authentication.RequestHeaderConfig; proxy != nil {
		trust.userHeaders = proxy.UsernameHeaders.Value
	}
	trust.set(errors.New("the server has just started"))
	port.ClientCA.AddListener(trust)
	hints := &certificateHints{CAContentProvider: port.ClientCA, known: trust.known}
	port.ClientCA, trust.learned = hints, hints.enqueue
	return trust
}

// Enqueue implements dynamiccertificates.Listener.
func (t *clusterTrust) Enqueue() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// known returns nil when the server knows whom the cluster trusts, for good: what
// changes later is followed.
func (t *clusterTrust) known() error { return *t.reason.Load() }

func (t *clusterTrust) set(reason error) {
	if reason != nil {
		reason = &serving.TrustError{Metrics: t.metrics, Reason: fmt.Errorf(
			"the authentication settings of the cluster (ConfigMap %s/%s) are not in use yet: %w", metav1.NamespaceSystem, settingsName, reason)}
	}
	t.reason.Store(&reason)
}

// lasting adds to a reason how to do without the settings.
func lasting(reason error) error {
	return fmt.Errorf("%w; to do without them start with --authentication-skip-lookup, which trusts --client-ca-file and --requestheader-client-ca-file only, "+
		"or with --authentication-tolerate-lookup-failure, which serves before they are read", reason)
}

// run returns when the server knows whom the cluster trusts, or ctx is done. It logs
// why it does not, each reason once: not in the first moment, in which it never does.
func (t *clusterTrust) run(ctx context.Context) {
	logger, started, logged := klog.FromContext(ctx), time.Now(), ""
	for {
		reason := t.check(ctx)
		if reason == nil {
			t.set(nil)
			t.learned()
			return
		}
		t.set(lasting(reason))
		if message := t.known().Error(); message != logged && time.Since(started) >= trustRetry {
			logger.Info("Requests are answered 503, because nobody can be authenticated", "reason", message)
			logged = message
		}
		if !t.wait(ctx) {
			return
		}
	}
}

// wait returns when it is worth to look again, and false when ctx is done.
func (t *clusterTrust) wait(ctx context.Context) bool {
	retry := time.NewTimer(trustRetry)
	defer retry.Stop()
	select {
	case <-ctx.Done():
	case <-t.changed:
	case <-retry.C:
	}
	return ctx.Err() == nil
}

// check compares what the server trusts with the settings. An authority that these do
// not name is none: a cluster may do without.
func (t *clusterTrust) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trustPatience)
	defer cancel()
	settings, err := t.settings(ctx)
	// An unexpected answer is that of something before the cluster, which knows nothing of ConfigMaps.
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) {
		return t.checkAbsence(klog.FromContext(ctx))
	}
	t.absentSince = time.Time{}
	if err != nil {
		return err
	}
	trusted := t.authorities()
	for _, key := range t.keys {
		wanted := bytes.TrimSpace([]byte(settings.Data[key]))
		if len(wanted) == 0 {
			continue
		}
		if !bytes.Contains(trusted, wanted) {
			return unused(key, wanted)
		}
		if key == proxyCAKey {
			if err := t.checkHeaders(settings.Data[proxyUserKey]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAbsence returns nil when the settings are missing for good: then there is nobody
// to trust, and tokens are all that is left.
func (t *clusterTrust) checkAbsence(logger klog.Logger) error {
	now := time.Now()
	if t.absentSince.IsZero() {
		t.absentSince = now
	}
	if now.Sub(t.absentSince) < trustAbsence {
		return fmt.Errorf("it does not exist, which counts as a cluster without client certificates after %v", trustAbsence)
	}
	logger.Info("The cluster names no authorities of client certificates: only tokens are accepted until it does",
		"configMap", klog.KRef(metav1.NamespaceSystem, settingsName), "missingFor", now.Sub(t.absentSince))
	return nil
}

// unused is why authorities of the settings are not trusted.
func unused(key string, authorities []byte) error {
	if _, err := certutil.ParseCertsPEM(authorities); err != nil {
		return unreadable(key, err)
	}
	return fmt.Errorf("%s was not taken over", key)
}

// unreadable tells how to mend an entry. kube-apiserver does not touch what it cannot
// read, and writes all entries when there are none (syncConfigMap in the package above).
func unreadable(key string, err error) error {
	return fmt.Errorf("%s cannot be read: %w: delete the ConfigMap, kube-apiserver makes it anew", key, err)
}

// checkHeaders compares the headers that name a user with those in the settings.
func (t *clusterTrust) checkHeaders(entry string) error {
	if entry == "" {
		return nil
	}
	var headers []string
	if err := json.Unmarshal([]byte(entry), &headers); err != nil {
		return unreadable(proxyUserKey, err)
	}
	if len(headers) > 0 && len(t.userHeaders()) == 0 {
		return fmt.Errorf("%s was not taken over", proxyUserKey)
	}
	return nil
}
