// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
	webhookauthorizer "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/client-go/kubernetes"
)

// AuthorizationOptions say who may do what.
type AuthorizationOptions struct {
	// Delegating asks the cluster.
	Delegating *genericoptions.DelegatingAuthorizationOptions
	// WebhookConfigFile is the kubeconfig of an authorization webhook of a standalone server.
	WebhookConfigFile string
}

// NewAuthorizationOptions returns the default values.
func NewAuthorizationOptions() *AuthorizationOptions {
	return &AuthorizationOptions{Delegating: genericoptions.NewDelegatingAuthorizationOptions()}
}

// AddFlags adds the flags of this section.
func (o *AuthorizationOptions) AddFlags(fs *pflag.FlagSet) {
	o.Delegating.AddFlags(fs)
	fs.StringVar(&o.WebhookConfigFile, "authorization-webhook-config-file", o.WebhookConfigFile,
		"With --standalone: a kubeconfig of the service that is asked for SubjectAccessReviews of users outside system:masters. "+
			"Without it they are denied.")
}

// completeDelegation makes --kubeconfig the default for asking the cluster.
func (o *AuthorizationOptions) completeDelegation(kubeconfig string) {
	if o.Delegating.RemoteKubeConfigFile == "" {
		o.Delegating.RemoteKubeConfigFile = kubeconfig
	}
}

// Validate returns everything that is wrong with the flags of this section.
func (o *AuthorizationOptions) Validate(standalone bool) []error {
	errs := o.Delegating.Validate()
	if !standalone && o.WebhookConfigFile != "" {
		errs = append(errs, fmt.Errorf("--authorization-webhook-config-file needs --standalone: in a cluster the cluster decides"))
	}
	return errs
}

// applyDelegated allows everything to the privileged groups and health checks to
// all, and asks the cluster about everyone else: what upstream's options do
// (k8s.io/apiserver pkg/server/options/authorization.go), in its order and under
// its names, which stand in refusals, but for its limit of 200 questions a second.
// A question is about one object, so answers are hardly ever used twice, and that
// would be the limit of requests. The cluster limits what it is asked by itself.
func (o *AuthorizationOptions) applyDelegated(info *genericapiserver.AuthorizationInfo) error {
	paths, err := path.NewAuthorizer(o.Delegating.AlwaysAllowPaths)
	if err != nil {
		return fmt.Errorf("reading --authorization-always-allow-paths: %w", err)
	}
	client, err := o.clusterClient()
	if err != nil {
		return err
	}
	review, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             o.Delegating.AllowCacheTTL,
		DenyCacheTTL:              o.Delegating.DenyCacheTTL,
		WebhookRetryBackoff:       o.Delegating.WebhookRetryBackoff,
	}.New()
	if err != nil {
		return err
	}
	info.Authorizer, err = union.New(
		union.NamedAuthorizer{
			AuthorizerName: "kubernetes.io/always-allow-groups",
			Authorizer:     authorizerfactory.NewPrivilegedGroups(o.Delegating.AlwaysAllowGroups...),
		},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: review},
	)
	return err
}

// clusterClient returns a client that sends as many questions at a time as there are.
func (o *AuthorizationOptions) clusterClient() (kubernetes.Interface, error) {
	config, err := clusterConfig(o.Delegating.RemoteKubeConfigFile)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Timeout = o.Delegating.ClientTimeout
	return kubernetes.NewForConfig(config)
}

// applyStandalone allows health checks to all and everything to the
// privileged groups, asks the webhook about everyone else and denies without one.
func (o *AuthorizationOptions) applyStandalone(info *genericapiserver.AuthorizationInfo) error {
	paths, err := path.NewAuthorizer(o.Delegating.AlwaysAllowPaths)
	if err != nil {
		return fmt.Errorf("reading --authorization-always-allow-paths: %w", err)
	}
	chain := []union.NamedAuthorizer{
		{AuthorizerName: "privileged-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(o.Delegating.AlwaysAllowGroups...)},
		{AuthorizerName: "always-allowed-paths", Authorizer: paths},
	}
	if o.WebhookConfigFile != "" {
		review, err := o.webhook()
		if err != nil {
			return err
		}
		chain = append(chain, union.NamedAuthorizer{AuthorizerName: "webhook", Authorizer: review})
	}
	info.Authorizer, err = union.New(chain...)
	return err
}

func (o *AuthorizationOptions) webhook() (authorizer.Authorizer, error) {
	config, err := webhook.LoadKubeconfig(o.WebhookConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("reading --authorization-webhook-config-file: %w", err)
	}
	review, err := webhookauthorizer.New(config, "v1", o.Delegating.AllowCacheTTL, o.Delegating.DenyCacheTTL,
		*o.Delegating.WebhookRetryBackoff, authorizer.DecisionDeny, nil, "standalone",
		authorizerfactory.NewDelegatingAuthorizerMetrics(), authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("creating the authorization webhook client: %w", err)
	}
	return review, nil
}
