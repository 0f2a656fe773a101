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
	"k8s.io/client-go/rest"
)

// AuthorizationOptions say who may do what.
type AuthorizationOptions struct {
	// Delegating asks the cluster.
	Delegating *genericoptions.DelegatingAuthorizationOptions
	// QPS and Burst bound the SubjectAccessReviews that the cluster is asked for. A QPS of
	// zero or less is no limit; a Burst of zero is twice the QPS.
	QPS   float32
	Burst int
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
	fs.Float32Var(&o.QPS, "authorization-qps", o.QPS,
		"The number of SubjectAccessReviews that the cluster is asked for in a second. 0 or less is no limit, which is the default: there is one for every object "+
			"that a user asks for, so a limit here is one of requests, while the cluster limits what it is asked by its own priority and fairness.")
	fs.IntVar(&o.Burst, "authorization-burst", o.Burst,
		"The number of SubjectAccessReviews that may be asked for at once when --authorization-qps limits them. 0 is twice that number.")
	fs.DurationVar(&o.Delegating.ClientTimeout, "authorization-timeout", o.Delegating.ClientTimeout,
		"How long the cluster may take for one SubjectAccessReview. A request whose user it has not decided about by then is tried a few times, and refused.")
	for name, decision := range map[string]string{"authorized": "allowed", "unauthorized": "denied"} {
		fs.Lookup("authorization-webhook-cache-" + name + "-ttl").Usage = "How long it is remembered that a request is " + decision +
			". A change of the cluster's rules needs as long to reach clients that ask this server by themselves; the others are asked about by kube-apiserver first."
	}
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
	if o.Burst < 0 {
		errs = append(errs, fmt.Errorf("--authorization-burst is %d: it must not be negative, 0 is twice --authorization-qps", o.Burst))
	}
	if o.Burst > 0 && o.QPS <= 0 {
		errs = append(errs, fmt.Errorf("--authorization-burst needs --authorization-qps: without it there is no limit"))
	}
	if o.Delegating.ClientTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--authorization-timeout is %v: it must be more than zero, or a cluster that hangs would hold requests for ever", o.Delegating.ClientTimeout))
	}
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
// would be the limit of requests. The cluster limits what it is asked by itself, and
// who wants less gives --authorization-qps.
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
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: withoutSelectors{review}},
	)
	return err
}

// clusterClient returns a client that sends as many questions at a time as there are, or as the flags allow.
func (o *AuthorizationOptions) clusterClient() (kubernetes.Interface, error) {
	config, err := o.clientConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func (o *AuthorizationOptions) clientConfig() (*rest.Config, error) {
	config, err := clusterConfig(o.Delegating.RemoteKubeConfigFile)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, 0
	if o.QPS > 0 {
		config.QPS, config.Burst = o.QPS, o.Burst
		if o.Burst == 0 {
			config.Burst = max(1, int(2*o.QPS))
		}
	}
	config.Timeout = o.Delegating.ClientTimeout
	return config, nil
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
