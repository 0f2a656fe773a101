// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status is the command "kubectl annex status".
package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/output"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

var _ client.Steps = (*Options)(nil)

// Options are the flags and arguments.
type Options struct {
	// Group is empty for all.
	Group  string
	Output output.Flag
	// Clock tells ages.
	Clock clock.PassiveClock

	factory client.Factory
	genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(factory client.Factory, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &Options{factory: factory, IOStreams: streams, Clock: clock}
	cmd := &cobra.Command{
		Use:   "status [GROUP]",
		Short: "Show the groups that annex has, or how far one of them is",
		Long: `Show the groups that annex has, or how far one of them is.

For one group: the phases that are done and those to come, the objects of every
resource, what annex says about the group, and how long writes were held back.`,
		Example: `  # All groups
  kubectl annex status

  # One group
  kubectl annex status argoproj.io

  # For scripts
  kubectl annex status argoproj.io -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name one API group, or none to see all")
			}
			return nil
		},
		ValidArgsFunction: client.CompleteGroups(factory),
		RunE:              client.RunE(o),
	}
	o.Output.AddFlag(cmd)
	return cmd
}

// Complete takes over the arguments.
func (o *Options) Complete(args []string) {
	if len(args) > 0 {
		o.Group = args[0]
	}
}

// Validate refuses what makes no sense.
func (o *Options) Validate() error {
	return o.Output.Validate()
}

// Run prints one group or all.
func (o *Options) Run(ctx context.Context) error {
	groups, err := o.factory.Groups()
	if err != nil {
		return err
	}
	if o.Group == "" {
		return o.all(ctx, groups)
	}
	group, err := client.Get(ctx, groups, o.Group)
	switch {
	case err != nil:
		return err
	case group == nil:
		return client.NotAnnexed(o.Group)
	case o.Output.ForPeople():
		return o.describe(group)
	}
	return o.Output.Print(o.Out, output.Group(group))
}

func (o *Options) all(ctx context.Context, groups annexclient.Interface) error {
	list, err := groups.KubeannexV1alpha1().AnnexedGroups().List(ctx, metav1.ListOptions{})
	if err != nil {
		return client.Explain(err)
	}
	if !o.Output.ForPeople() {
		printed := &kubeannexv1alpha1.AnnexedGroupList{ListMeta: list.ListMeta, Items: []kubeannexv1alpha1.AnnexedGroup{}}
		printed.SetGroupVersionKind(kubeannexv1alpha1.SchemeGroupVersion.WithKind("AnnexedGroupList"))
		for i := range list.Items {
			printed.Items = append(printed.Items, *output.Group(&list.Items[i]))
		}
		return o.Output.Print(o.Out, printed)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(o.ErrOut, "Annex has no groups: \"kubectl annex adopt GROUP\" adopts one.")
		return nil
	}
	var rows [][]string
	for i := range list.Items {
		rows = append(rows, o.row(&list.Items[i]))
	}
	return output.Table(o.Out, []string{"GROUP", "PHASE", "RESOURCES", "OBJECTS", "PROGRESS", "NOTE", "AGE"}, rows)
}
