// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/follow"
	"github.com/kubeannex/annex/pkg/cli/output"
	"github.com/kubeannex/annex/pkg/preflight"
)

// report is --dry-run. It fails when the group cannot be adopted.
func (o *Options) report(ctx context.Context) error {
	if err := o.refuseMoved(ctx); err != nil {
		return err
	}
	clients, err := o.factory.Preflight()
	if err != nil {
		return err
	}
	report, err := preflight.Collect(ctx, clients, o.Group, preflight.Options{Spec: o.spec()})
	if err != nil {
		return err
	}
	if o.Output.ForPeople() {
		err = printReport(o.Out, report)
	} else {
		err = o.Output.Print(o.Out, report)
	}
	if err != nil {
		return err
	}
	if refusals := report.Refusals(); len(refusals) > 0 {
		return fmt.Errorf("%s cannot be adopted, refusals: %d", o.Group, len(refusals))
	}
	return nil
}

// refuseMoved says no to a report about a group that annex serves, where it would
// read as if something was wrong. Where annex is not installed yet, there is none.
func (o *Options) refuseMoved(ctx context.Context) error {
	groups, err := o.factory.Groups()
	if err != nil {
		return err
	}
	if existing, err := client.Get(ctx, groups, o.Group); err == nil && existing != nil && !follow.BeforeCutOver(existing.Status.Phase) {
		return fmt.Errorf("%s is in annex already (phase %s): \"kubectl annex status %s\" shows it", o.Group, existing.Status.Phase, o.Group)
	}
	return nil
}

// printReport prints a report as tables. Those without a row are left out. There
// is always a finding: at least what could not be looked at from here.
func printReport(out io.Writer, report *preflight.Report) error {
	first := true
	for _, table := range tables(report) {
		if len(table.rows) == 0 {
			continue
		}
		if !first {
			fmt.Fprintln(out)
		}
		first = false
		fmt.Fprintln(out, table.title)
		if err := output.Table(out, table.headings, table.rows); err != nil {
			return err
		}
	}
	return nil
}

// table is one part of the report.
type table struct {
	title    string
	headings []string
	rows     [][]string
}

func tables(report *preflight.Report) []table {
	resources := table{title: "Resources of " + report.Group, headings: []string{"NAME", "SCOPE", "SERVED", "STORED AS", "CONVERSION", "OBJECTS", "SIZE (ABOUT)"}}
	for _, r := range report.Resources {
		objects, size := strconv.FormatInt(r.Objects, 10), preflight.FormatBytes(r.EstimatedBytes)
		if !r.Counted {
			objects, size = "unknown", "unknown"
		}
		resources.rows = append(resources.rows, []string{r.Name, r.Scope, strings.Join(r.ServedVersions, ","), r.StorageVersion, r.Conversion, objects, size})
	}
	services := table{title: "Versions", headings: []string{"APISERVICE", "ROUTE", "SERVICE", "AVAILABLE"}}
	for _, s := range report.APIServices {
		services.rows = append(services.rows, []string{s.Name, string(s.Route), orNone(s.Service), s.Available})
	}
	webhooks := table{title: "Admission webhooks", headings: []string{"NAME", "TYPE", "CONFIGURATION", "RESOURCES", "ON FAILURE", "CALLS"}}
	for _, w := range report.Webhooks {
		webhooks.rows = append(webhooks.rows, []string{w.Name, w.Type, w.Configuration, strings.Join(w.Resources, ","), w.FailurePolicy, w.Target})
	}
	managers := table{title: "Managed by", headings: []string{"TOOL", "OWNER", "KIND", "NAME"}}
	for _, m := range report.Managers {
		managers.rows = append(managers.rows, []string{m.Tool, orNone(m.Owner), m.ObjectKind, m.ObjectName})
	}
	references := table{title: "Owner references", headings: []string{"OWNER", "DEPENDENT", "FOUND", "LOOKED AT"}}
	for _, r := range report.References {
		references.rows = append(references.rows, []string{r.Owner, r.Dependent, strconv.FormatInt(r.Objects, 10), strconv.FormatInt(r.Sampled, 10)})
	}
	findings := table{title: "Findings", headings: []string{"SEVERITY", "CHECK", "MESSAGE"}}
	for _, f := range report.Findings {
		findings.rows = append(findings.rows, []string{string(f.Severity), f.Check, f.Message})
	}
	return []table{resources, services, webhooks, managers, references, findings}
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}
