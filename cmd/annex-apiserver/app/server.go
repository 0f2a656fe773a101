// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the command of annex-apiserver and its order of start and stop.
package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
	"github.com/kubeannex/annex/pkg/command"
)

const description = `Serves custom resources from an etcd of its own.

Alone, --standalone starts everything that is needed: an embedded etcd, a
certificate authority and an administrator's kubeconfig in --root-dir.

Behind a cluster, it serves API groups whose APIService points to it and
delegates authentication and authorization to the cluster's kube-apiserver.`

// NewServerCommand returns the annex-apiserver command. It serves until ctx is done.
func NewServerCommand(ctx context.Context) *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:  "annex-apiserver",
		Long: description,
		Example: `  # A server of your own, with nothing else installed
  annex-apiserver --standalone --root-dir=.annex
  kubectl --kubeconfig=.annex/admin.kubeconfig get customresourcedefinitions

  # Prepare a member of an etcd cluster for it
  annex-apiserver etcd-seed --help`,
		Version:       version.Get().GitVersion,
		Args:          command.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.ApplyLogs(cmd, opts.Logs); err != nil {
				return err
			}
			if err := opts.ServerRun.ComponentGlobalsRegistry.Set(); err != nil {
				return fmt.Errorf("setting features: %w: correct --feature-gates and --emulated-version", err)
			}
			cliflag.PrintFlags(cmd.Flags())
			completed, err := opts.Complete()
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			return Run(ctx, completed)
		},
	}
	command.AddFlags(cmd, opts.Flags())
	cmd.AddCommand(newSeedCommand(ctx))
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}
