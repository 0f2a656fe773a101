// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release is the command "kubectl annex release".
package release

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/follow"
	"github.com/kubeannex/annex/pkg/cli/output"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

var _ client.Steps = (*Options)(nil)

// Options are the flags and arguments.
type Options struct {
	Group              string
	AllowNewUIDs       bool
	DiscardStrayWrites bool
	Output             output.Flag
	Follow             follow.Flags

	factory client.Factory
	genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(factory client.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{factory: factory, IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "release GROUP",
		Short: "Move a group back from annex to the cluster",
		Long: `Move a group back from annex to the cluster.

Everything that changed in annex is written to the copies that the cluster kept,
then the cluster serves the group again. An adoption that has not been cut over yet
is undone instead, without a trace.

The cluster can give an object its UID back only if it kept a copy. Objects that
were created in annex, and all objects after a purge, get new UIDs; owner
references to them are repaired. Such a release is refused without
--allow-new-uids, and annex goes on serving the group.

A copy that somebody changed after the adoption had verified it is overwritten or
deleted. Such changes are named by the condition StrayWrites and are not in annex:
compare them, repeat in annex what is wanted, then release with
--discard-stray-writes. Without it such a release is refused, too.`,
		Example: `  # Move the group back and watch
  kubectl annex release argoproj.io --wait

  # The same, when objects were created in annex
  kubectl annex release argoproj.io --allow-new-uids --wait

  # The same, when the changes that StrayWrites names have been looked at
  kubectl annex release argoproj.io --discard-stray-writes --wait`,
		Args:              client.OneGroup,
		ValidArgsFunction: client.CompleteGroups(factory),
		RunE:              client.RunE(o),
	}
	cmd.Flags().BoolVar(&o.AllowNewUIDs, "allow-new-uids", false, "Give new UIDs to objects that the cluster has no copy of.")
	cmd.Flags().BoolVar(&o.DiscardStrayWrites, "discard-stray-writes", false, "Overwrite copies that were changed after they were verified. Look at these changes first.")
	o.Follow.AddFlags(cmd, "the cluster serves the group")
	o.Output.AddFlag(cmd)
	return cmd
}

// Complete takes over the arguments.
func (o *Options) Complete(args []string) {
	o.Group = args[0]
}

// Validate refuses what makes no sense.
func (o *Options) Validate() error {
	if err := o.Follow.Validate(); err != nil {
		return err
	}
	return o.Output.Validate()
}

// Run releases the group.
func (o *Options) Run(ctx context.Context) error {
	groups, err := o.factory.Groups()
	if err != nil {
		return err
	}
	group, err := client.Get(ctx, groups, o.Group)
	if err != nil {
		return err
	}
	if group == nil {
		return client.NotAnnexed(o.Group)
	}
	if err := o.refuse(group); err != nil {
		return err
	}
	if group, err = o.begin(ctx, groups, group); err != nil {
		return err
	}
	if o.Follow.Wait {
		last, err := follow.Until(ctx, groups, o.Group, o.Follow.Timeout, follow.NewDisplay(o.ErrOut), o.verdict(group))
		if err != nil {
			return err
		}
		o.sayf("%s", finish(group))
		if last != nil {
			group = last
		}
	} else if o.Output.ForPeople() {
		fmt.Fprintf(o.ErrOut, "It goes on by itself: \"kubectl annex status %s\" shows how far it is.\n", o.Group)
	}
	return o.Output.Print(o.Out, output.Group(group))
}

// refuse says no to what the controller would refuse later, and to a second release.
func (o *Options) refuse(group *kubeannexv1alpha1.AnnexedGroup) error {
	strays := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	allowed := o.allowed(group.Spec)
	switch {
	case meta.IsStatusConditionTrue(group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged) && !allowed.AllowNewUIDs:
		return fmt.Errorf("the cluster's copies of %s were purged, so all its objects would get new UIDs: add --allow-new-uids if they may", o.Group)
	case strays != nil && strays.Status == metav1.ConditionTrue && !allowed.DiscardStrayWrites:
		return fmt.Errorf("%s cannot be released: %s: add --discard-stray-writes once these changes have been looked at", o.Group, client.OneLine(strays.Message))
	case group.DeletionTimestamp != nil && !o.Follow.Wait && o.permits(group):
		return fmt.Errorf("%s is being released already (phase %s): add --wait to watch", o.Group, group.Status.Phase)
	}
	return nil
}

// allowed is a spec with what the flags allow in addition.
func (o *Options) allowed(spec kubeannexv1alpha1.AnnexedGroupSpec) kubeannexv1alpha1.AnnexedGroupSpec {
	spec.AllowNewUIDs = spec.AllowNewUIDs || o.AllowNewUIDs
	spec.DiscardStrayWrites = spec.DiscardStrayWrites || o.DiscardStrayWrites
	return spec
}

// permits says that the spec of a group allows all that the flags do.
func (o *Options) permits(group *kubeannexv1alpha1.AnnexedGroup) bool {
	allowed := o.allowed(group.Spec)
	return allowed.AllowNewUIDs == group.Spec.AllowNewUIDs && allowed.DiscardStrayWrites == group.Spec.DiscardStrayWrites
}

// begin allows what the flags allow, and deletes the AnnexedGroup. It returns the
// object as it was before it was deleted.
func (o *Options) begin(ctx context.Context, groups annexclient.Interface, group *kubeannexv1alpha1.AnnexedGroup) (*kubeannexv1alpha1.AnnexedGroup, error) {
	annexedGroups := groups.KubeannexV1alpha1().AnnexedGroups()
	uid := group.UID
	if !o.permits(group) {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			fresh, err := annexedGroups.Get(ctx, o.Group, metav1.GetOptions{})
			if err != nil {
				return err
			}
			fresh.Spec = o.allowed(fresh.Spec)
			group, err = annexedGroups.Update(ctx, fresh, metav1.UpdateOptions{FieldManager: "kubectl-annex"})
			return err
		})
		if err != nil {
			return nil, client.Explain(err)
		}
	}
	if group.DeletionTimestamp != nil {
		o.sayf("annexedgroup.kubeannex.io/%s is being released", o.Group)
		return group, nil
	}
	err := annexedGroups.Delete(ctx, o.Group, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, client.Explain(err)
	}
	if follow.BeforeCutOver(group.Status.Phase) {
		o.sayf("annexedgroup.kubeannex.io/%s deleted, the adoption is being undone", o.Group)
	} else {
		o.sayf("annexedgroup.kubeannex.io/%s deleted, the group is being released", o.Group)
	}
	return group, nil
}

// verdict ends the wait when the object is gone, or when annex refuses to
// release it. A condition that does not speak of the present spec decides nothing.
func (o *Options) verdict(released *kubeannexv1alpha1.AnnexedGroup) follow.Verdict {
	return func(group *kubeannexv1alpha1.AnnexedGroup) (bool, error) {
		if group == nil || group.UID != released.UID {
			return true, nil
		}
		progressing := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionProgressing)
		if progressing == nil || progressing.ObservedGeneration < group.Generation {
			return false, nil
		}
		var flag string
		switch progressing.Reason {
		case kubeannexv1alpha1.ReasonNewUIDsNeeded:
			flag = "--allow-new-uids"
		case kubeannexv1alpha1.ReasonStrayWrites:
			flag = "--discard-stray-writes"
		default:
			return false, nil
		}
		return false, fmt.Errorf("%s is not released yet: %s (\"kubectl annex release %s %s\" sets it)", o.Group, client.OneLine(progressing.Message), o.Group, flag)
	}
}

func finish(group *kubeannexv1alpha1.AnnexedGroup) string {
	if follow.BeforeCutOver(group.Status.Phase) {
		return fmt.Sprintf("the adoption of %s is undone", group.Name)
	}
	return fmt.Sprintf("%s is released: the cluster serves it", group.Name)
}

func (o *Options) sayf(format string, args ...any) {
	if o.Output.ForPeople() {
		fmt.Fprintf(o.Out, format+"\n", args...)
	}
}
