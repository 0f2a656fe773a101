// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top is the command "kubectl annex top".
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/output"
)

var _ client.Steps = (*Options)(nil)

// Options are the flags and arguments.
type Options struct {
	// Filter is a group, a plural name, or both with a dot between; empty for all.
	Filter string
	// SortBy is what the worst have the most of.
	SortBy string
	// Limit is the largest number of rows, 0 for all.
	Limit  int
	Output output.Flag
	// Clock tells ages.
	Clock clock.PassiveClock

	factory client.Factory
	genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(factory client.Factory, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &Options{factory: factory, IOStreams: streams, Clock: clock, SortBy: orders()[0].name, Limit: 20, Output: output.Flag{HasWide: true}}
	cmd := &cobra.Command{
		Use:   "top [RESOURCE|GROUP]",
		Short: "Show who reads what from annex and what it costs, worst first",
		Long: `Show who reads what from annex and what it costs, worst first.

Each line adds up the requests of one client, user, verb, resource and shape of
selectors. A client that scans much and gets little back reads past every index:
"kubectl annex explain" says how it could have the same for less.

The figures add up what all replicas of annex have seen, each since it was
started; a warning names those that are missing. Each keeps a bounded number of
lines. Those used least make room for others and are added up, one sum for each
verb and resource, as (others). All nodes are one user, system:node:*.`,
		Example: `  # Whose lists cost the most?
  kubectl annex top

  # Who moves the most bytes of workflows?
  kubectl annex top workflows.argoproj.io --sort-by bytes

  # All lines of a group, with more columns
  kubectl annex top argoproj.io --limit 0 -o wide`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name one resource or API group, or none to see all")
			}
			return nil
		},
		ValidArgsFunction: client.CompleteGroups(factory),
		RunE:              client.RunE(o),
	}
	cmd.Flags().StringVar(&o.SortBy, "sort-by", o.SortBy, fmt.Sprintf("What is worst, one of: %s.", strings.Join(orderNames(), ", ")))
	cmd.Flags().IntVar(&o.Limit, "limit", o.Limit, "The largest number of lines. 0 shows all.")
	o.Output.AddFlag(cmd)
	// The only error is that of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(orderNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// order is a value of --sort-by.
type order struct {
	name string
	key  func(*kubeannexv1alpha1.ListProfileRow) int64
}

// orders are all of them, the default first.
func orders() []order {
	return []order{
		{"scanned", func(r *kubeannexv1alpha1.ListProfileRow) int64 { return r.Scanned }},
		{"returned", func(r *kubeannexv1alpha1.ListProfileRow) int64 { return r.Returned }},
		{"bytes", func(r *kubeannexv1alpha1.ListProfileRow) int64 { return r.Bytes }},
		{"count", func(r *kubeannexv1alpha1.ListProfileRow) int64 { return r.Count }},
	}
}

func orderNames() []string {
	var names []string
	for _, o := range orders() {
		names = append(names, o.name)
	}
	return names
}

// Complete takes over the arguments.
func (o *Options) Complete(args []string) {
	if len(args) > 0 {
		o.Filter = args[0]
	}
}

// Validate refuses what makes no sense.
func (o *Options) Validate() error {
	if !slices.Contains(orderNames(), o.SortBy) {
		return fmt.Errorf("--sort-by=%s is not known: use %s", o.SortBy, strings.Join(orderNames(), " or "))
	}
	if o.Limit < 0 {
		return fmt.Errorf("--limit=%d is less than nothing: use 0 for all lines", o.Limit)
	}
	return o.Output.Validate()
}

// Run prints the profiles.
func (o *Options) Run(ctx context.Context) error {
	annex, err := o.factory.Groups()
	if err != nil {
		return err
	}
	list, err := annex.KubeannexV1alpha1().ListProfiles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return client.Explain(err)
	}
	o.warn(ctx, list)
	list = list.DeepCopy()
	list.Items = slices.DeleteFunc(list.Items, func(p kubeannexv1alpha1.ListProfile) bool { return !o.wanted(&p.Profile) })
	o.sort(list.Items)
	matching := len(list.Items)
	if o.Limit > 0 && matching > o.Limit {
		list.Items = list.Items[:o.Limit]
	}
	if !o.Output.ForPeople() {
		return o.Output.Print(o.Out, printed(list))
	}
	return o.show(list, matching)
}

func (o *Options) wanted(row *kubeannexv1alpha1.ListProfileRow) bool {
	resource, _, _ := strings.Cut(row.Resource, "/")
	return slices.Contains([]string{"", row.Group, resource, row.Resource, resource + "." + row.Group, name(row)}, o.Filter)
}

// name is the resource as users write it, with the group before the subresource.
func name(row *kubeannexv1alpha1.ListProfileRow) string {
	resource, subresource, isSub := strings.Cut(row.Resource, "/")
	if row.Group != "" {
		resource += "." + row.Group
	}
	if isSub {
		resource += "/" + subresource
	}
	return resource
}

// sort puts the worst first. Rows that are as bad stay in the order of the server,
// which puts those first that scanned the most.
func (o *Options) sort(profiles []kubeannexv1alpha1.ListProfile) {
	for _, by := range orders() {
		if by.name == o.SortBy {
			slices.SortStableFunc(profiles, func(a, b kubeannexv1alpha1.ListProfile) int {
				return cmp.Compare(by.key(&b.Profile), by.key(&a.Profile))
			})
		}
	}
}

// printed is a list with the kinds that typed clients drop.
func printed(list *kubeannexv1alpha1.ListProfileList) *kubeannexv1alpha1.ListProfileList {
	list.SetGroupVersionKind(kubeannexv1alpha1.SchemeGroupVersion.WithKind("ListProfileList"))
	if list.Items == nil {
		list.Items = []kubeannexv1alpha1.ListProfile{}
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kubeannexv1alpha1.SchemeGroupVersion.WithKind("ListProfile"))
	}
	return list
}
