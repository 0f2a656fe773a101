// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package root puts the commands of the plugin together.
package root

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/cli/adopt"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/explain"
	"github.com/kubeannex/annex/pkg/cli/purge"
	"github.com/kubeannex/annex/pkg/cli/release"
	"github.com/kubeannex/annex/pkg/cli/status"
	"github.com/kubeannex/annex/pkg/cli/top"
)

// NewCommand returns "kubectl annex" with the flags that kubectl has too.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams)
	flags.CacheDir = nil // The names of resources are cached where kubectl does, others are not.
	global := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(global)
	return newCommand(client.NewFactory(flags, streams.ErrOut), streams, clock.RealClock{}, global)
}

func newCommand(factory client.Factory, streams genericiooptions.IOStreams, clock clock.PassiveClock, global *pflag.FlagSet) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubectl-annex",
		// "[flags]" would be all that a usage line says.
		DisableFlagsInUseLine: true,
		Short:                 "Move groups of custom resources into annex and back",
		Long: `Move groups of custom resources into annex and back.

Annex is an API server with its own etcd. A group of custom resources that it has
adopted leaves the cluster's etcd alone, and lists of it can use indexes. URLs,
UIDs, permissions and webhooks stay as they are.`,
		Example: `  # What would move, and what speaks against it?
  kubectl annex adopt argoproj.io --dry-run

  # Move a group, look at it, move it back
  kubectl annex adopt argoproj.io --wait
  kubectl annex status argoproj.io
  kubectl annex release argoproj.io --wait

  # What does a list cost, and whose lists cost the most?
  kubectl annex explain workflows -n prod -l app=web
  kubectl annex top`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl annex"},
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.PersistentFlags().AddFlagSet(global)
	cmd.AddCommand(
		adopt.NewCommand(factory, streams),
		status.NewCommand(factory, streams, clock),
		release.NewCommand(factory, streams),
		purge.NewCommand(factory, streams),
		explain.NewCommand(factory, streams),
		top.NewCommand(factory, streams, clock),
		newVersionCommand(streams),
		newCompletionCommand(),
		newOptionsCommand(streams),
	)
	cmd.SetUsageTemplate(usageTemplate())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see \"%s --help\"", err, cmd.CommandPath())
	})
	return cmd
}

func newVersionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Show the version of the plugin",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, version.Get().GitVersion)
			return err
		},
	}
}

// newOptionsCommand shows the flags that would otherwise fill the help of every command.
func newOptionsCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:               "options",
		Short:             "Show the flags that all commands have",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(streams.Out, "All commands have these flags:\n\n%s", cmd.InheritedFlags().FlagUsages())
			return err
		},
	}
}

// usageTemplate is what follows the description in the help of a command. It
// has the parts of cobra's own except the flags that all commands have.
func usageTemplate() string {
	return `Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}} [command]{{end}}
{{if .HasExample}}
Examples:
{{.Example}}
{{end}}{{if .HasAvailableSubCommands}}
Commands:
{{range .Commands}}{{if .IsAvailableCommand}}  {{rpad .Name .NamePadding}} {{.Short}}
{{end}}{{end}}{{end}}{{if and .HasParent .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}
"kubectl annex options" shows the flags that all commands have.{{if .HasAvailableSubCommands}}
"kubectl annex [command] --help" tells more about a command.{{end}}
`
}

// Execute runs a command and returns the exit code. A failure is one line that
// says what is wrong and how to mend it.
func Execute(ctx context.Context, cmd *cobra.Command) int {
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %s\n", client.OneLine(err.Error()))
		return 1
	}
	return 0
}
