// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the command of annex-controller and its order of start.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/cmd/annex-controller/app/options"
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
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(opts.Logs, nil); err != nil {
				return fmt.Errorf("configuring logs: %w", err)
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
	addFlags(cmd, opts)
	return cmd
}

func addFlags(cmd *cobra.Command, opts *options.Options) {
	sections := opts.Flags()
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name())
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSet(name))
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, columns)
}

// Execute runs the command and returns the exit code. A failure is one line on
// errOut that says what is wrong and how to mend it.
func Execute(cmd *cobra.Command, errOut io.Writer) int {
	err := cli.RunNoErrOutput(cmd)
	klog.Flush()
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "annex-controller: %s\n", oneLine(err))
	return 1
}

// oneLine flattens an error, also one that holds several, into a single line.
func oneLine(err error) string {
	message := err.Error()
	if aggregate, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		var parts []string
		for _, e := range utilerrors.Flatten(aggregate).Errors() {
			parts = append(parts, e.Error())
		}
		message = strings.Join(parts, "; ")
	}
	return strings.Join(strings.Fields(message), " ")
}
