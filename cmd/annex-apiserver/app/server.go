// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the command of annex-apiserver and its order of start and stop.
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

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
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
  kubectl --kubeconfig=.annex/admin.kubeconfig get customresourcedefinitions`,
		Version:       version.Get().GitVersion,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(opts.Logs, nil); err != nil {
				return fmt.Errorf("configuring logs: %w", err)
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
	fmt.Fprintf(errOut, "annex-apiserver: %s\n", oneLine(err))
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
