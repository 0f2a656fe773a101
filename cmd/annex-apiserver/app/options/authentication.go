// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"github.com/kubeannex/annex/pkg/standalone"
)

// AuthenticationOptions say who may be believed to be whom.
type AuthenticationOptions struct {
	// Delegating asks the cluster. --client-ca-file is used in both modes.
	Delegating *genericoptions.DelegatingAuthenticationOptions
	// TokenFile holds static tokens of a standalone server. Empty means the one in the root directory.
	TokenFile string
	// WebhookConfigFile is the kubeconfig of a token webhook of a standalone server.
	WebhookConfigFile string
	// Anonymous takes a request without credentials for one of system:anonymous. False
	// leaves that to health checks, which a kubelet asks without any.
	Anonymous bool
}

// NewAuthenticationOptions returns the default values.
func NewAuthenticationOptions() *AuthenticationOptions {
	return &AuthenticationOptions{Delegating: genericoptions.NewDelegatingAuthenticationOptions(), Anonymous: true}
}

// AddFlags adds the flags of this section.
func (o *AuthenticationOptions) AddFlags(fs *pflag.FlagSet) {
	o.Delegating.AddFlags(fs)
	fs.StringVar(&o.TokenFile, "token-auth-file", o.TokenFile,
		"With --standalone: a file of static tokens, one 'token,user,uid,\"group1,group2\"' a line. "+
			"By default tokens.csv in --root-dir, with one token for the administrator.")
	fs.StringVar(&o.WebhookConfigFile, "authentication-token-webhook-config-file", o.WebhookConfigFile,
		"With --standalone: a kubeconfig of the service that is asked for TokenReviews.")
	fs.BoolVar(&o.Anonymous, "anonymous-auth", o.Anonymous,
		"Take a request without credentials for one of the user system:anonymous, of whom authorization decides, as kube-apiserver does by default. "+
			"With false, only "+strings.Join(healthChecks(), ", ")+" may be asked without credentials, everything else is answered 401. "+
			"It is about clients that come by themselves: whom kube-apiserver sends is believed to be whom it says.")
	describeLookupFlags(fs)
}

// describeLookupFlags says what these flags mean for a server that does not end without an answer of the cluster.
func describeLookupFlags(fs *pflag.FlagSet) {
	fs.Lookup("authentication-tolerate-lookup-failure").Usage = "Serve before the missing authentication settings are read from the cluster: " +
		"until then everybody with a certificate is refused or anonymous. By default requests are answered 503 until they are."
}

// healthChecks are the paths that may be asked without credentials in any case.
func healthChecks() []string { return []string{"/healthz", "/livez", "/readyz"} }

// anonymous says which requests without credentials are taken for anonymous ones.
func (o *AuthenticationOptions) anonymous() *apiserver.AnonymousAuthConfig {
	config := &apiserver.AnonymousAuthConfig{Enabled: true}
	if !o.Anonymous {
		for _, path := range healthChecks() {
			config.Conditions = append(config.Conditions, apiserver.AnonymousAuthCondition{Path: path})
		}
	}
	return config
}

// completeDelegation makes --kubeconfig the default for asking the cluster.
func (o *AuthenticationOptions) completeDelegation(kubeconfig string) {
	if o.Delegating.RemoteKubeConfigFile == "" {
		o.Delegating.RemoteKubeConfigFile = kubeconfig
	}
}

// Validate returns everything that is wrong with the flags of this section.
func (o *AuthenticationOptions) Validate(standalone bool) []error {
	errs := o.Delegating.Validate()
	if standalone {
		return errs
	}
	if o.TokenFile != "" {
		errs = append(errs, fmt.Errorf("--token-auth-file needs --standalone: in a cluster tokens are checked by the cluster"))
	}
	if o.WebhookConfigFile != "" {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-config-file needs --standalone: in a cluster tokens are checked by the cluster"))
	}
	return errs
}

// applyStandalone authenticates by client certificate, static token and token webhook.
// Everyone else is anonymous or refused, and nothing is granted to anonymous users but health checks.
func (o *AuthenticationOptions) applyStandalone(info *genericapiserver.AuthenticationInfo, serving *genericapiserver.SecureServingInfo, credentials *standalone.Credentials) error {
	clientCAs, err := o.clientCAs(credentials)
	if err != nil {
		return err
	}
	if err := info.ApplyClientCert(clientCAs, serving); err != nil {
		return fmt.Errorf("using the client certificate authority: %w", err)
	}
	tokens, err := o.tokens(credentials)
	if err != nil {
		return err
	}
	known := group.NewAuthenticatedGroupAdder(union.New(
		x509.NewDynamic(clientCAs.VerifyOptions, x509.CommonNameUserConversion),
		bearertoken.New(tokens),
		websocket.NewProtocolAuthenticator(tokens),
	))
	info.Authenticator = union.NewFailOnError(known, anonymous.NewAuthenticator(o.anonymous().Conditions))
	return nil
}

// clientCAs trusts the server's own authority and, in addition, --client-ca-file.
func (o *AuthenticationOptions) clientCAs(credentials *standalone.Credentials) (dynamiccertificates.CAContentProvider, error) {
	own, err := dynamiccertificates.NewDynamicCAContentFromFile("standalone-ca", credentials.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	if o.Delegating.ClientCert.ClientCA == "" {
		return own, nil
	}
	if err := checkCertificate("--client-ca-file", o.Delegating.ClientCert.ClientCA); err != nil {
		return nil, err
	}
	further, err := o.Delegating.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return nil, fmt.Errorf("reading --client-ca-file: %w", err)
	}
	return dynamiccertificates.NewUnionCAContentProvider(own, further), nil
}

func (o *AuthenticationOptions) tokens(credentials *standalone.Credentials) (authenticator.Token, error) {
	file := o.TokenFile
	if file == "" {
		file = credentials.TokenFile
	}
	static, err := tokenfile.NewCSV(file)
	if err != nil {
		return nil, fmt.Errorf("reading the token file %s: %w: correct the file or remove it to have a new one made", file, err)
	}
	if o.WebhookConfigFile == "" {
		return static, nil
	}
	config, err := webhook.LoadKubeconfig(o.WebhookConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("reading --authentication-token-webhook-config-file: %w", err)
	}
	review, err := webhooktoken.New(config, "v1", nil, *o.Delegating.WebhookRetryBackoff)
	if err != nil {
		return nil, fmt.Errorf("creating the token webhook client: %w", err)
	}
	return tokenunion.New(static, cachedFor(o.Delegating.CacheTTL, review)), nil
}

func cachedFor(ttl time.Duration, tokens authenticator.Token) authenticator.Token {
	return tokencache.New(tokens, false, ttl, ttl)
}
