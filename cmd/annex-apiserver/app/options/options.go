// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds the flags of annex-apiserver and turns them into the
// configuration of a server.
package options

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// certificatesDir is the default of --cert-dir below the root directory.
const certificatesDir = "certificates"

// defaultControllerUser is the service account that the chart gives to annex-controller.
const defaultControllerUser = "system:serviceaccount:annex-system:annex-controller"

// Options are the flags of annex-apiserver.
type Options struct {
	ServerRun      *genericoptions.ServerRunOptions
	Standalone     *StandaloneOptions
	Etcd           *EtcdOptions
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *AuthenticationOptions
	Authorization  *AuthorizationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	CoreAPI        *genericoptions.CoreAPIOptions
	Admission      *genericoptions.AdmissionOptions
	EgressSelector *genericoptions.EgressSelectorOptions
	Traces         *genericoptions.TracingOptions
	Logs           *logs.Options

	// ReplicaCount is the number of annex-apiserver processes over the same etcd.
	ReplicaCount int
	// ControllerUser is the name of the user who may import objects.
	ControllerUser string
	// AlternateNames are further DNS names and addresses in a serving certificate that the server makes itself.
	AlternateNames []string

	// sections are the flags as they were parsed, to know which were given.
	sections cliflag.NamedFlagSets
}

// watchTermination is how long the server gives watches to end when it stops:
// half of what Kubernetes gives a pod.
const watchTermination = 15 * time.Second

// NewOptions returns the default values.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.Required = true
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	serving.BindPort = 6443
	// Empty means below the root directory.
	serving.ServerCert.CertDirectory = ""
	// The usual client is a proxy that puts many requests on one connection
	// (k8s.io/apiserver pkg/server/options/recommended.go).
	serving.HTTP2MaxStreamsPerConnection = 1000

	run := genericoptions.NewServerRunOptions()
	// Without it watches do not end with the server, which then waits a minute for them.
	run.ShutdownWatchTerminationGracePeriod = watchTermination
	// kube-apiserver cannot repeat a write that a closing connection refuses; its client can.
	run.ShutdownSendRetryAfter = true

	return &Options{
		ServerRun:      run,
		Standalone:     NewStandaloneOptions(),
		Etcd:           NewEtcdOptions(),
		SecureServing:  serving.WithLoopback(),
		Authentication: NewAuthenticationOptions(),
		Authorization:  NewAuthorizationOptions(),
		Audit:          genericoptions.NewAuditOptions(),
		Features:       genericoptions.NewFeatureOptions(),
		CoreAPI:        genericoptions.NewCoreAPIOptions(),
		Admission:      NewAdmissionOptions(),
		EgressSelector: genericoptions.NewEgressSelectorOptions(),
		Traces:         genericoptions.NewTracingOptions(),
		Logs:           logs.NewOptions(),
		ReplicaCount:   1,
		ControllerUser: defaultControllerUser,
	}
}

// Flags returns the flags by section.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sections cliflag.NamedFlagSets
	o.Standalone.AddFlags(sections.FlagSet("standalone"))
	o.Etcd.AddFlags(sections.FlagSet("etcd"))
	o.SecureServing.AddFlags(sections.FlagSet("secure serving"))
	o.Authentication.AddFlags(sections.FlagSet("authentication"))
	o.Authorization.AddFlags(sections.FlagSet("authorization"))
	o.CoreAPI.AddFlags(sections.FlagSet("cluster"))
	o.Admission.AddFlags(sections.FlagSet("admission"))
	o.Audit.AddFlags(sections.FlagSet("auditing"))
	o.Features.AddFlags(sections.FlagSet("features"))
	o.EgressSelector.AddFlags(sections.FlagSet("egress selector"))
	o.Traces.AddFlags(sections.FlagSet("traces"))
	o.ServerRun.AddUniversalFlags(sections.FlagSet("generic"))
	logsapi.AddFlags(o.Logs, sections.FlagSet("logs"))

	fs := sections.FlagSet("generic")
	describeVersionFlags(fs)
	fs.IntVar(&o.ReplicaCount, "apiserver-count", o.ReplicaCount,
		"The number of annex-apiserver processes over the same etcd. Above one, a new CustomResourceDefinition is "+
			"reported as established five seconds later, so that every process serves it by then.")
	fs.StringVar(&o.ControllerUser, "controller-user", o.ControllerUser,
		"The name of the user that annex-controller is known by. Nobody else may use the import subresource of AnnexedGroups, "+
			"by which objects are stored as they are.")
	fs = sections.FlagSet("secure serving")
	fs.StringSliceVar(&o.AlternateNames, "tls-alternate-names", o.AlternateNames,
		"Further DNS names and IP addresses in the serving certificate that is generated when --tls-cert-file is not given, "+
			"such as annex.annex-system.svc.")
	fs.Lookup("cert-dir").Usage = "The directory for the serving certificate that is generated when --tls-cert-file is not given. " +
		"By default 'certificates' in --root-dir."
	o.sections = sections
	return sections
}

// describeVersionFlags says what these flags mean for a server of one
// component; upstream's texts are about servers of several.
func describeVersionFlags(fs *pflag.FlagSet) {
	fs.Lookup("emulated-version").Usage = "The Kubernetes version, as major.minor, whose features the server has. By default that of the program."
	fs.Lookup("min-compatibility-version").Usage = "The oldest Kubernetes version, as major.minor, that other replicas over the same etcd may have. " +
		"By default the one before --emulated-version."
	fs.Lookup("feature-gates").Usage = "Features to switch on or off, as a comma separated list of name=true or name=false. The features are:\n" +
		strings.Join(utilfeature.DefaultFeatureGate.KnownFeatures(), "\n")
}

// CompletedOptions can only be had from Options.Complete.
type CompletedOptions struct {
	*completedOptions
}

type completedOptions struct {
	*Options
}

// Complete fills in what follows from other flags. It does no I/O.
func (o *Options) Complete() (CompletedOptions, error) {
	if err := o.ServerRun.Complete(); err != nil {
		return CompletedOptions{}, err
	}
	if err := o.completeAdvertiseAddress(); err != nil {
		return CompletedOptions{}, err
	}
	if o.Standalone.Enabled {
		o.Features.EnablePriorityAndFairness = false // it needs a cluster
		// Without a garbage collector the finalizers that this makes deletions wait for would never be removed.
		o.Etcd.Generic.EnableGarbageCollection = false
	} else {
		if o.SecureServing.ServerCert.CertDirectory == "" {
			o.SecureServing.ServerCert.CertDirectory = filepath.Join(o.Standalone.RootDir, certificatesDir)
		}
		o.Authentication.completeDelegation(o.CoreAPI.CoreAPIKubeconfigPath)
		o.Authorization.completeDelegation(o.CoreAPI.CoreAPIKubeconfigPath)
	}
	o.Etcd.complete(o.Standalone.RootDir)
	return CompletedOptions{&completedOptions{o}}, nil
}

// completeAdvertiseAddress tells clients the address that the server listens
// on. Only when it listens on all of them one has to be looked for, which fails
// on a machine without a network.
func (o *Options) completeAdvertiseAddress() error {
	if bind := o.SecureServing.BindAddress; o.ServerRun.AdvertiseAddress == nil && !bind.IsUnspecified() {
		o.ServerRun.AdvertiseAddress = bind
	}
	if err := o.ServerRun.DefaultAdvertiseAddress(o.SecureServing.SecureServingOptions); err != nil {
		return fmt.Errorf("finding the address to advertise: %w: set --advertise-address", err)
	}
	return nil
}

// Validate returns everything that is wrong with the flags.
func (o CompletedOptions) Validate() []error {
	var errs []error
	errs = append(errs, o.ServerRun.Validate()...)
	errs = append(errs, o.validateMode()...)
	errs = append(errs, o.Etcd.Validate()...)
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, validateServingPair(o.SecureServing.ServerCert.CertKey)...)
	errs = append(errs, o.Authentication.Validate(o.Standalone.Enabled)...)
	errs = append(errs, o.Authorization.Validate(o.Standalone.Enabled)...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, o.CoreAPI.Validate()...)
	errs = append(errs, o.Admission.Validate()...)
	errs = append(errs, o.EgressSelector.Validate()...)
	errs = append(errs, o.Traces.Validate()...)
	if o.ReplicaCount < 1 {
		errs = append(errs, fmt.Errorf("--apiserver-count is %d: it must be at least 1", o.ReplicaCount))
	}
	return errs
}
