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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/pkg/apiserver"
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

	changed chan struct{}
	// reason is why the server has not learned it, nil when it has.
	reason atomic.Pointer[error]
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

func newClusterTrust(authentication *genericapiserver.AuthenticationInfo, serving *genericapiserver.SecureServingInfo, keys []string) *clusterTrust {
	trust := &clusterTrust{keys: keys, changed: make(chan struct{}, 1)}
	trust.authorities = serving.ClientCA.CurrentCABundleContent
	trust.userHeaders = func() []string { return nil }
	if proxy := authentication.RequestHeaderConfig; proxy != nil {
		trust.userHeaders = proxy.UsernameHeaders.Value
	}
	trust.set(errors.New("the server has just started"))
	serving.ClientCA.AddListener(trust)
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
		reason = fmt.Errorf("the authentication settings of the cluster (ConfigMap %s/%s) were not read yet: %w", metav1.NamespaceSystem, settingsName, reason)
	}
	t.reason.Store(&reason)
}

// run returns when the server knows whom the cluster trusts, or ctx is done.
func (t *clusterTrust) run(ctx context.Context) {
	for {
		reason := t.check(ctx)
		t.set(reason)
		if reason == nil {
			return
		}
		retry := time.NewTimer(trustRetry)
		select {
		case <-ctx.Done():
		case <-t.changed:
		case <-retry.C:
		}
		retry.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// check compares what the server trusts with the settings. An authority that these do
// not name is none: a cluster may do without.
func (t *clusterTrust) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trustPatience)
	defer cancel()
	settings, err := t.settings(ctx)
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
			return fmt.Errorf("%s is not in use", key)
		}
		if key == proxyCAKey && namesHeaders(settings.Data[proxyUserKey]) && len(t.userHeaders()) == 0 {
			return fmt.Errorf("%s is not in use", proxyUserKey)
		}
	}
	return nil
}

// namesHeaders says that an entry is a list of at least one header.
func namesHeaders(entry string) bool {
	var headers []string
	return json.Unmarshal([]byte(entry), &headers) == nil && len(headers) > 0
}
