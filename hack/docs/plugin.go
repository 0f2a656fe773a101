// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubeannex/annex/pkg/cli/root"
)

// pluginPage is the help of the kubectl plugin, one section for each command.
func pluginPage() string {
	var page strings.Builder
	cmd := root.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}})
	page.WriteString("# kubectl annex\n\n" + generatedNote)
	page.WriteString(long(cmd))
	writeExample(&page, cmd)
	page.WriteString("The commands end with exit code 0 when they did what was asked, and with 1 and one line that says why when they did not.\n\n")
	for _, sub := range cmd.Commands() {
		if sub.Name() == "options" || sub.Name() == "help" {
			continue
		}
		fmt.Fprintf(&page, "## %s\n\n```\n%s\n```\n\n%s", sub.CommandPath(), sub.UseLine(), long(sub))
		writeExample(&page, sub)
		writeFlags(&page, sub.LocalNonPersistentFlags())
	}
	page.WriteString("## Flags of all commands\n\n")
	writeFlags(&page, cmd.PersistentFlags())
	return strings.TrimRight(page.String(), "\n") + "\n"
}

// long is the long description. Lines that are indented are shown as they are.
func long(cmd *cobra.Command) string {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n  ", "\n    ") + "\n\n"
}

func writeExample(page *strings.Builder, cmd *cobra.Command) {
	if cmd.Example == "" {
		return
	}
	var lines []string
	for line := range strings.Lines(cmd.Example) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	fmt.Fprintf(page, "```shell\n%s\n```\n\n", strings.Join(lines, "\n"))
}

func writeFlags(page *strings.Builder, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	page.WriteString("| Flag | Default | Meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" || f.Name == "help" || f.Name == "version" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		fmt.Fprintf(page, "| %s | %s | %s |\n", name, defaultOf(f), cell(f.Usage))
	})
	page.WriteString("\n")
}
