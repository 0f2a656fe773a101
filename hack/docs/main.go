// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs writes the reference pages that follow from the code: the flags
// of annex-apiserver, the metrics of its storage and the help of the plugin.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
	"github.com/kubeannex/annex/pkg/reads"
	"github.com/kubeannex/annex/pkg/serving"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

const generatedNote = "<!-- Written by hack/update-docs.sh. Do not edit. -->\n\n"

func main() {
	dir := flag.String("output", "docs", "The folder to write the pages to.")
	flag.Parse()
	if err := write(*dir); err != nil {
		fmt.Fprintf(os.Stderr, "docs: %v\n", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for name, page := range map[string]string{"flags.md": flagsPage(), "metrics.md": metricsPage(), "kubectl-annex.md": pluginPage()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(page), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// flagsPage lists all flags by section, with their default values.
func flagsPage() string {
	var page strings.Builder
	page.WriteString("# Flags of annex-apiserver\n\n" + generatedNote)
	sections := options.NewOptions().Flags()
	for _, name := range sections.Order {
		fmt.Fprintf(&page, "## %s\n\n| Flag | Default | Meaning |\n|---|---|---|\n", strings.ToUpper(name[:1])+name[1:])
		sections.FlagSet(name).VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			fmt.Fprintf(&page, "| `--%s` | %s | %s |\n", f.Name, defaultOf(f), cell(f.Usage))
		})
		page.WriteString("\n")
	}
	return strings.TrimRight(page.String(), "\n") + "\n"
}

func defaultOf(f *pflag.Flag) string {
	value := strings.Trim(f.DefValue, "[]")
	if value == "" {
		return ""
	}
	return "`" + value + "`"
}

// cell makes a text fit into one cell of a table.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`).Replace(text)
}

// metricsPage lists the metrics that are Annex's own.
func metricsPage() string {
	var page strings.Builder
	page.WriteString("# Metrics of annex-apiserver\n\n" + generatedNote +
		"`/metrics` shows these beside the metrics that every Kubernetes API server has. All are of stability ALPHA and, where the table does not say otherwise, counters.\n\n" +
		"| Name | Labels | Meaning |\n|---|---|---|\n")
	for _, m := range slices.Concat(annexed.Descriptions(), reads.Descriptions()) {
		page.WriteString(metricRow(m.Name, m.Labels, m.Help, m.Gauge))
	}
	page.WriteString(metricRow(serving.RefusedName, serving.RefusedLabels(), serving.RefusedHelp, false))
	page.WriteString("\nThe label `caller` says on whose behalf etcd was asked:\n\n| Caller | Meaning |\n|---|---|\n")
	for _, caller := range annexed.Callers() {
		fmt.Fprintf(&page, "| `%s` | %s |\n", caller, caller.Meaning())
	}
	return page.String()
}

func metricRow(name string, labels []string, help string, gauge bool) string {
	if gauge {
		help = "A gauge. " + help
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.Join(labels, ", "), cell(help))
}
