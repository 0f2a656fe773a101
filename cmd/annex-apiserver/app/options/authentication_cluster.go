// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	openapicommon "k8s.io/kube-openapi/pkg/common"
)

const (
	// tokenQPS and tokenBurst bound the TokenReviews that the cluster is asked for. A
	// token that is no good costs its sender nothing, so anybody could have annex ask
	// more; the values are upstream's (pkg/server/options/authentication.go).
	tokenQPS, tokenBurst = 200, 400

	// The entries of the settings beside those in trust.go.
	proxyUIDKey    = "requestheader-uid-headers"
	proxyGroupKey  = "requestheader-group-headers"
	proxyExtraKey  = "requestheader-extra-headers-prefix"
	proxyNameKey   = "requestheader-allowed-names"
	clientPurpose  = "client-ca"
	proxyPurpose   = "front-proxy-ca"
	settingsSource = metav1.NamespaceSystem + "/" + settingsName
)

// applyDelegated believes front proxies and client certificates of the authorities
// that the cluster names or flags give, and tokens that the cluster knows: what
// upstream's options do (k8s.io/apiserver pkg/server/options/authentication.go), in
// its order, but for the first read of the settings. There it is made at once, and a
// cluster that does not answer ends the process; here they are followed from when
// they can be read, and clusterTrust keeps requests waiting until then.
func (o *AuthenticationOptions) applyDelegated(info *genericapiserver.AuthenticationInfo, serving *genericapiserver.SecureServingInfo, openAPI *openapicommon.Config) error {
	client, err := o.clusterClient()
	if err != nil {
		return err
	}
	config := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                o.anonymous(),
		CacheTTL:                 o.Delegating.CacheTTL,
		WebhookRetryBackoff:      o.Delegating.WebhookRetryBackoff,
		TokenAccessReviewTimeout: o.Delegating.TokenRequestTimeout,
		TokenAccessReviewClient:  client.AuthenticationV1(),
	}
	if config.ClientCertificateCAContentProvider, err = o.clientAuthorities(client); err != nil {
		return err
	}
	if config.RequestHeaderConfig, err = o.frontProxy(client); err != nil {
		return err
	}
	if authorities := config.ClientCertificateCAContentProvider; authorities != nil {
		if err := info.ApplyClientCert(authorities, serving); err != nil {
			return fmt.Errorf("using the authorities of client certificates: %w", err)
		}
	}
	if proxy := config.RequestHeaderConfig; proxy != nil {
		info.RequestHeaderConfig = proxy
		if err := info.ApplyClientCert(proxy.CAContentProvider, serving); err != nil {
			return fmt.Errorf("using the authorities of front proxies: %w", err)
		}
	}
	authenticator, security, err := config.New()
	if err != nil {
		return err
	}
	info.Authenticator = authenticator
	if openAPI != nil {
		openAPI.SecurityDefinitions = security
	}
	return nil
}

// clusterClient returns a client that reads the settings and asks for TokenReviews.
func (o *AuthenticationOptions) clusterClient() (kubernetes.Interface, error) {
	config, err := clusterConfig(o.Delegating.RemoteKubeConfigFile)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = tokenQPS, tokenBurst
	return kubernetes.NewForConfig(config)
}

// clientAuthorities are those of client certificates, nil for none.
func (o *AuthenticationOptions) clientAuthorities(client kubernetes.Interface) (dynamiccertificates.CAContentProvider, error) {
	if o.Delegating.ClientCert != (genericoptions.ClientCertAuthenticationOptions{}) {
		authorities, err := o.Delegating.ClientCert.GetClientCAContentProvider()
		if err != nil {
			return nil, fmt.Errorf("reading --client-ca-file: %w", err)
		}
		return authorities, nil
	}
	if o.Delegating.SkipInClusterLookup {
		return nil, nil
	}
	return settingsAuthorities(client, clientPurpose, clientCAKey)
}

// frontProxy says which front proxies are believed and in which headers they name users, nil for none.
func (o *AuthenticationOptions) frontProxy(client kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
	if o.Delegating.RequestHeader.ClientCAFile != "" {
		config, err := o.Delegating.RequestHeader.ToAuthenticationRequestHeaderConfig()
		if err != nil {
			return nil, fmt.Errorf("reading --requestheader-client-ca-file: %w", err)
		}
		return config, nil
	}
	if o.Delegating.SkipInClusterLookup {
		return nil, nil
	}
	authorities, err := settingsAuthorities(client, proxyPurpose, proxyCAKey)
	if err != nil {
		return nil, err
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(settingsName, metav1.NamespaceSystem, client,
		proxyUserKey, proxyUIDKey, proxyGroupKey, proxyExtraKey, proxyNameKey)
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   &proxySettings{ConfigMapCAController: authorities, headers: headers},
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
	}, nil
}

// proxySettings follows what the settings say about front proxies. Unlike upstream's
// (DynamicRequestHeaderController), it does not ask the cluster before the port is
// served: one that hangs would keep health checks unanswered.
type proxySettings struct {
	*dynamiccertificates.ConfigMapCAController
	headers *headerrequest.RequestHeaderAuthRequestController
}

var (
	_ dynamiccertificates.CAContentProvider = &proxySettings{}
	_ dynamiccertificates.ControllerRunner  = &proxySettings{}
)

// Run implements dynamiccertificates.ControllerRunner.
func (s *proxySettings) Run(ctx context.Context, workers int) {
	go s.headers.Run(ctx, workers)
	s.ConfigMapCAController.Run(ctx, workers)
}

// settingsAuthorities follows one entry of the settings of the cluster.
func settingsAuthorities(client kubernetes.Interface, purpose, key string) (*dynamiccertificates.ConfigMapCAController, error) {
	authorities, err := dynamiccertificates.NewDynamicCAFromConfigMapController(purpose, metav1.NamespaceSystem, settingsName, key, client)
	if err != nil {
		return nil, fmt.Errorf("following %s of ConfigMap %s: %w", key, settingsSource, err)
	}
	return authorities, nil
}
