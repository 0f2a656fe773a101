// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs writes the reference pages that follow from the code: the flags
// and metrics of both servers and the help of the plugin.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app"
	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
	controlleroptions "github.com/kubeannex/annex/cmd/annex-controller/app/options"
	"github.com/kubeannex/annex/pkg/admission/hostapis"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup"
	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/pkg/etcd/space"
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

// flagsPage lists all flags by program and section, with their default values.
func flagsPage() string {
	var page strings.Builder
	page.WriteString("# Flags\n\n" + generatedNote)
	server := options.NewOptions().Flags()
	writeSections(&page, "annex-apiserver", server)
	page.WriteString("## annex-apiserver etcd-seed\n\nPrepares a member of an external etcd, see [install.md](install.md#etcd). Beside these it has the flags for logs.\n\n" + flagsHead)
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range server.Order {
		known.AddFlagSet(server.FlagSet(name))
	}
	if seed, _, err := app.NewServerCommand(context.Background()).Find([]string{"etcd-seed"}); err == nil {
		seed.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if known.Lookup(f.Name) == nil && f.Name != "help" {
				writeFlag(&page, f)
			}
		})
	}
	page.WriteString("\n")
	writeSections(&page, "annex-controller", controlleroptions.NewOptions().Flags())
	return strings.TrimRight(page.String(), "\n") + "\n"
}

const flagsHead = "| Flag | Default | Meaning |\n|---|---|---|\n"

func writeSections(page *strings.Builder, program string, sections cliflag.NamedFlagSets) {
	fmt.Fprintf(page, "## %s\n\n", program)
	for _, name := range sections.Order {
		fmt.Fprintf(page, "### %s: %s\n\n%s", program, name, flagsHead)
		sections.FlagSet(name).VisitAll(func(f *pflag.Flag) { writeFlag(page, f) })
		page.WriteString("\n")
	}
}

func writeFlag(page *strings.Builder, f *pflag.Flag) {
	if !f.Hidden && f.Deprecated == "" {
		fmt.Fprintf(page, "| `--%s` | %s | %s |\n", f.Name, defaultOf(f), cell(f.Usage))
	}
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
	page.WriteString("# Metrics\n\n" + generatedNote +
		"The metrics that are annex's own. All are of stability ALPHA.\n\n" +
		"## annex-apiserver\n\n" +
		"`/metrics` of its port shows these beside the metrics that every Kubernetes API server has (`apiserver_...`, `etcd_...`), for those who may get that path. Where the table does not say otherwise they are counters.\n\n" +
		metricsHead)
	for _, m := range slices.Concat(annexed.Descriptions(), reads.Descriptions()) {
		page.WriteString(metricRow(m.Name, m.Labels, m.Help, m.Gauge))
	}
	page.WriteString(metricRow(serving.RefusedName, serving.RefusedLabels(), serving.RefusedHelp, false))
	page.WriteString(metricRow(space.FullName, space.FullLabels(), space.FullHelp, true))
	page.WriteString(metricRow(hostapis.DisabledName, hostapis.DisabledLabels(), hostapis.DisabledHelp, true))
	page.WriteString("\nThe label `caller` says on whose behalf etcd was asked:\n\n| Caller | Meaning |\n|---|---|\n")
	for _, caller := range annexed.Callers() {
		fmt.Fprintf(&page, "| `%s` | %s |\n", caller, caller.Meaning())
	}
	writeControllerMetrics(&page)
	return page.String()
}

const metricsHead = "| Name | Labels | Meaning |\n|---|---|---|\n"

// writeControllerMetrics lists those of annex-controller.
func writeControllerMetrics(page *strings.Builder) {
	page.WriteString("\n## annex-controller\n\n" +
		"`/metrics` at `--metrics-bind-address` shows these beside the metrics that every controller built with [controller-runtime](https://book.kubebuilder.io/reference/metrics-reference) has " +
		"(`controller_runtime_...`, `workqueue_...`, `rest_client_...`, `leader_election_master_status`, `certwatcher_...`). Of several replicas only the one that leads has numbers of groups.\n\n" +
		metricsHead)
	for _, m := range annexedgroup.MetricDescriptions() {
		page.WriteString(kindRow(m))
	}
	for _, m := range certificates.MetricDescriptions() {
		page.WriteString(kindRow(annexedgroup.MetricDescription(m)))
	}
}

func kindRow(m annexedgroup.MetricDescription) string {
	help := m.Help
	if m.Kind != "counter" {
		help = "A " + m.Kind + ". " + help
	}
	return metricRow(m.Name, m.Labels, help, false)
}

func metricRow(name string, labels []string, help string, gauge bool) string {
	if gauge {
		help = "A gauge. " + help
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.Join(labels, ", "), cell(help))
}
