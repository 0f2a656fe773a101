// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the command of annex-controller and its order of start.
package app

import (
	"context"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"

	"github.com/kubeannex/annex/cmd/annex-controller/app/options"
	"github.com/kubeannex/annex/pkg/command"
)

const description = `Moves groups of custom resources between a cluster and annex, as AnnexedGroups say.

It talks to the cluster's kube-apiserver and to annex-apiserver, never to an
etcd, and serves the webhooks that hold writes back during a move and that guard
the definitions of annexed groups.`

// NewControllerCommand returns the annex-controller command. It runs until ctx is done.
func NewControllerCommand(ctx context.Context) *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:           "annex-controller",
		Long:          description,
		Version:       version.Get().GitVersion,
		Args:          command.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.ApplyLogs(cmd, opts.Logs); err != nil {
				return err
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
	cmd.AddCommand(newCheckUninstallCommand(ctx))
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}
