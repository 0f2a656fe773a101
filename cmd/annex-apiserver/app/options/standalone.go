// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"
)

// StandaloneOptions switch on the mode that needs no cluster.
type StandaloneOptions struct {
	// Enabled is true when the server runs alone.
	Enabled bool
	// RootDir holds everything that the server keeps between two starts: the
	// data of the embedded etcd and, when it runs alone, its credentials.
	RootDir string
}

// NewStandaloneOptions returns the default values.
func NewStandaloneOptions() *StandaloneOptions {
	return &StandaloneOptions{RootDir: ".annex"}
}

// AddFlags adds the flags of this section.
func (o *StandaloneOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "standalone", o.Enabled,
		"Run without a cluster. Credentials are made in --root-dir at the first start and reused afterwards; "+
			"members of the group system:masters may do everything, everyone else what --authorization-webhook-config-file allows.")
	fs.StringVar(&o.RootDir, "root-dir", o.RootDir,
		"The directory that holds the data of the embedded etcd and, with --standalone, the server's credentials. "+
			"Its contents can be read by the user who runs the server only.")
}

// validateMode refuses flags of one mode in the other.
func (o CompletedOptions) validateMode() []error {
	var errs []error
	if o.Standalone.RootDir == "" {
		errs = append(errs, fmt.Errorf("--root-dir is empty: name a directory that the server may write to"))
	}
	if !o.Etcd.isEmbedded {
		for _, flag := range []string{"embedded-etcd-quota-bytes", "embedded-etcd-max-request-bytes"} {
			if o.given(flag) {
				errs = append(errs, fmt.Errorf("--%s and external --etcd-servers contradict each other: there is no embedded etcd; drop one of them", flag))
			}
		}
	}
	if !o.Standalone.Enabled {
		return errs
	}
	for _, flag := range clusterFlags() {
		if o.given(flag) {
			errs = append(errs, fmt.Errorf("--standalone and --%s contradict each other: a standalone server has no cluster; drop one of them", flag))
		}
	}
	return errs
}

// clusterFlags are the flags that mean something in a cluster only.
func clusterFlags() []string {
	return []string{
		"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig",
		"authorization-qps", "authorization-burst", "authorization-timeout",
		"authentication-skip-lookup", "authentication-tolerate-lookup-failure",
		"requestheader-client-ca-file", "requestheader-allowed-names", "requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix",
		"enable-admission-plugins", "disable-admission-plugins", "admission-control-config-file",
		"enable-priority-and-fairness", "enable-garbage-collector", "cert-dir",
	}
}

// given reports whether a flag was set on the command line.
func (o *Options) given(name string) bool {
	for _, section := range o.sections.FlagSets {
		if flag := section.Lookup(name); flag != nil {
			return flag.Changed
		}
	}
	return false
}
