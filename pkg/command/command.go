// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is what the commands of the servers have in common.
package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"
)

// AddFlags adds flags by section, and the help that shows the sections. A flag
// that cannot be parsed is refused with a hint at the help.
func AddFlags(cmd *cobra.Command, sections cliflag.NamedFlagSets) {
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name())
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSet(name))
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return seeHelp(cmd, err) })
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, columns)
}

// NoArgs refuses arguments. It is for cobra.Command.Args.
func NoArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return seeHelp(cmd, err)
	}
	return nil
}

func seeHelp(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
}

// Execute runs the command and returns the exit code. A failure is one line on
// errOut that says what is wrong and how to mend it, and the last one.
func Execute(cmd *cobra.Command, errOut io.Writer) int {
	output := &errorOutput{out: errOut}
	cmd.SetErr(output)
	err := cli.RunNoErrOutput(cmd)
	klog.Flush()
	if err == nil {
		return 0
	}
	output.end(cmd.Name(), oneLine(err))
	return 1
}

// oneLine flattens an error, also one that is a list of several, into a single
// line. Of a list inside another error the text around it counts.
func oneLine(err error) string {
	message := err.Error()
	if aggregate, ok := err.(utilerrors.Aggregate); ok { //nolint:errorlint // a wrapped list is not meant
		var parts []string
		for _, e := range utilerrors.Flatten(aggregate).Errors() {
			parts = append(parts, e.Error())
		}
		message = strings.Join(parts, "; ")
	}
	return strings.Join(strings.Fields(message), " ")
}
