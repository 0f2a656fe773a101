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
			"Only the user who runs the server can read it.")
}

// validateMode refuses flags of one mode in the other.
func (o CompletedOptions) validateMode() []error {
	var errs []error
	if o.Standalone.RootDir == "" {
		errs = append(errs, fmt.Errorf("--root-dir is empty: name a directory that the server may write to"))
	}
	if !o.Standalone.Enabled {
		return errs
	}
	refuse := func(isSet bool, flag string) {
		if isSet {
			errs = append(errs, fmt.Errorf("--standalone and %s contradict each other: a standalone server has no cluster to ask; drop one of them", flag))
		}
	}
	refuse(o.CoreAPI.CoreAPIKubeconfigPath != "", "--kubeconfig")
	refuse(o.Authentication.Delegating.RemoteKubeConfigFile != "", "--authentication-kubeconfig")
	refuse(o.Authorization.Delegating.RemoteKubeConfigFile != "", "--authorization-kubeconfig")
	refuse(len(o.Admission.EnablePlugins) != 0, "--enable-admission-plugins")
	refuse(o.Admission.ConfigFile != "", "--admission-control-config-file")
	return errs
}
