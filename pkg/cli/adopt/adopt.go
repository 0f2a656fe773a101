// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopt is the command "kubectl annex adopt".
package adopt

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/follow"
	"github.com/kubeannex/annex/pkg/cli/output"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/pkg/preflight"
)

var _ client.Steps = (*Options)(nil)

// Options are the flags and arguments.
type Options struct {
	Group               string
	AllowProtectedGroup bool
	DryRun              bool
	Output              output.Flag
	Follow              follow.Flags

	indexes indexes

	factory client.Factory
	genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(factory client.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{factory: factory, IOStreams: streams, indexes: indexes{current: -1}}
	cmd := &cobra.Command{
		Use:   "adopt GROUP",
		Short: "Move a group of custom resources from the cluster into annex",
		Long: `Move a group of custom resources from the cluster into annex.

All resources and versions of the group move, with all their objects. Clients go
on working meanwhile; writes are held back for a moment near the end. Nothing is
lost on the way: until the group is cut over, "kubectl annex release" undoes the
adoption without a trace, and afterwards it moves the group back.

With --resource and --index-label, annex keeps an index of these labels, so that a
list with a selector such as "app=web" reads only the objects that match. If annex
has the group already, only the indexes are changed.`,
		Example: `  # Look at what would move, and what speaks against it
  kubectl annex adopt argoproj.io --dry-run

  # Move the group and watch
  kubectl annex adopt argoproj.io --wait

  # Index two labels of workflows and one of cronworkflows
  kubectl annex adopt argoproj.io --resource workflows --index-label team --index-label app \
    --resource cronworkflows --index-label team

  # The same, shorter
  kubectl annex adopt argoproj.io --index-label workflows=team --index-label workflows=app \
    --index-label cronworkflows=team`,
		Args:              client.OneGroup,
		ValidArgsFunction: o.completeGroup,
		RunE:              client.RunE(o),
	}
	cmd.Flags().Var(&resourceValue{&o.indexes}, "resource", "The plural name of a resource that the following --index-label belong to. Can be repeated.")
	cmd.Flags().Var(&labelValue{&o.indexes}, "index-label", "A label key to index, or resource=key. Can be repeated.")
	cmd.Flags().BoolVar(&o.AllowProtectedGroup, "allow-protected-group", false, "Adopt the group even if it belongs to the Kubernetes community (*.k8s.io, *.kubernetes.io) or clusters need it in order to start.")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "Change nothing. Report what would move, who has a hand in it and what speaks against it.")
	o.Follow.AddFlags(cmd, "annex serves the group")
	o.Output.AddFlag(cmd)
	return cmd
}

// completeGroup completes the groups that the cluster has definitions of.
func (o *Options) completeGroup(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	clients, err := o.factory.Preflight()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	groups, err := preflight.Groups(cmd.Context(), clients.Definitions)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return groups, cobra.ShellCompDirectiveNoFileComp
}

// Complete takes over the arguments.
func (o *Options) Complete(args []string) {
	o.Group = args[0]
}

// Validate refuses what makes no sense.
func (o *Options) Validate() error {
	if o.DryRun && o.Follow.Wait {
		return errors.New("--dry-run changes nothing that --wait could wait for: leave out one of them")
	}
	if !o.AllowProtectedGroup && apihelpers.IsProtectedCommunityGroup(o.Group) {
		return fmt.Errorf("%s belongs to the Kubernetes community: add --allow-protected-group if it must be adopted", o.Group)
	}
	for _, validate := range []func() error{o.indexes.validate, o.Follow.Validate, o.Output.Validate} {
		if err := validate(); err != nil {
			return err
		}
	}
	return nil
}

// Run adopts the group, or reports what that would mean.
func (o *Options) Run(ctx context.Context) error {
	if o.DryRun {
		return o.report(ctx)
	}
	groups, err := o.factory.Groups()
	if err != nil {
		return err
	}
	existing, err := client.Get(ctx, groups, o.Group)
	if err != nil {
		return err
	}
	if existing == nil {
		existing, err = o.create(ctx, groups)
	} else {
		existing, err = o.change(ctx, groups, existing)
	}
	if err != nil {
		return err
	}
	if !o.Follow.Wait {
		return o.Output.Print(o.Out, output.Group(existing))
	}
	last, err := follow.Until(ctx, groups, o.Group, o.Follow.Timeout, follow.NewDisplay(o.ErrOut), Verdict)
	if err != nil {
		return err
	}
	if o.Output.ForPeople() {
		fmt.Fprintln(o.Out, summary(last))
	}
	return o.Output.Print(o.Out, output.Group(last))
}

func (o *Options) spec() kubeannexv1alpha1.AnnexedGroupSpec {
	return kubeannexv1alpha1.AnnexedGroupSpec{Resources: o.indexes.resources, AllowProtectedGroup: o.AllowProtectedGroup}
}

// create refuses what cannot be meant, and leaves all else to the controller.
func (o *Options) create(ctx context.Context, groups annexclient.Interface) (*kubeannexv1alpha1.AnnexedGroup, error) {
	clients, err := o.factory.Preflight()
	if err != nil {
		return nil, err
	}
	refusals, err := preflight.Check(ctx, clients.Definitions, o.Group, o.spec())
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if len(refusals) > 0 {
		return nil, errors.New(refusals[0].Message)
	}
	group := &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: o.Group}, Spec: o.spec()}
	created, err := groups.KubeannexV1alpha1().AnnexedGroups().Create(ctx, group, metav1.CreateOptions{FieldManager: "kubectl-annex"})
	if err != nil {
		return nil, client.Explain(err)
	}
	o.sayf("annexedgroup.kubeannex.io/%s created", o.Group)
	if !o.Follow.Wait && o.Output.ForPeople() {
		fmt.Fprintf(o.ErrOut, "The adoption goes on by itself: \"kubectl annex status %s\" shows how far it is.\n", o.Group)
	}
	return created, nil
}

// change brings new indexes to a group that annex has already.
func (o *Options) change(ctx context.Context, groups annexclient.Interface, existing *kubeannexv1alpha1.AnnexedGroup) (*kubeannexv1alpha1.AnnexedGroup, error) {
	if existing.DeletionTimestamp != nil {
		return nil, fmt.Errorf("%s is being released (phase %s): wait until that is done, then adopt it again", o.Group, existing.Status.Phase)
	}
	changed := false
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		group, err := groups.KubeannexV1alpha1().AnnexedGroups().Get(ctx, o.Group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if changed = o.indexes.merge(&group.Spec); !changed {
			existing = group
			return nil
		}
		group.Spec.AllowProtectedGroup = group.Spec.AllowProtectedGroup || o.AllowProtectedGroup
		existing, err = groups.KubeannexV1alpha1().AnnexedGroups().Update(ctx, group, metav1.UpdateOptions{FieldManager: "kubectl-annex"})
		return err
	})
	switch {
	case err != nil:
		return nil, client.Explain(err)
	case changed:
		o.sayf("annexedgroup.kubeannex.io/%s configured", o.Group)
	case len(o.indexes.resources) > 0:
		o.sayf("annexedgroup.kubeannex.io/%s unchanged", o.Group)
	default:
		return existing, o.refuse(existing)
	}
	return existing, nil
}

// refuse says why an AnnexedGroup that exists cannot be created. One that is on
// its way can be waited for.
func (o *Options) refuse(group *kubeannexv1alpha1.AnnexedGroup) error {
	switch phase := group.Status.Phase; {
	case phase == kubeannexv1alpha1.PhaseAnnexed:
		return fmt.Errorf("%s is annexed already: \"kubectl annex status %s\" shows it", o.Group, o.Group)
	case phase == kubeannexv1alpha1.PhaseAborted:
		return fmt.Errorf("an adoption of %s was aborted%s: remove what is left of it with \"kubectl annex release %s\", then adopt again", o.Group, inBrackets(reasonOf(group)), o.Group)
	case !o.Follow.Wait:
		return fmt.Errorf("%s is being adopted already (phase %s): add --wait to watch", o.Group, phase)
	}
	return nil
}

// say tells a person what was done. With another format, the object is all that is printed.
func (o *Options) sayf(format string, args ...any) {
	if o.Output.ForPeople() {
		fmt.Fprintf(o.Out, format+"\n", args...)
	}
}
