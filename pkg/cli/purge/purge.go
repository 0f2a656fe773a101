// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package purge is the command "kubectl annex purge".
package purge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
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
	Group  string
	Yes    bool
	Output output.Flag
	Follow follow.Flags

	factory client.Factory
	genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(factory client.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{factory: factory, IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "purge GROUP",
		Short: "Delete the copies that the cluster kept of an annexed group",
		Long: `Delete the copies that the cluster kept of an annexed group.

This frees the cluster's etcd. No client sees it: annex has the objects. It cannot
be undone, and a later release has to give every object a new UID.

Annex refuses to purge copies that are not what was verified at the adoption: such
a stray write may be the only trace of what somebody wanted.`,
		Example: `  # Purge, after typing the name of the group
  kubectl annex purge argoproj.io --wait

  # Purge without being asked
  kubectl annex purge argoproj.io --yes --wait`,
		Args:              client.OneGroup,
		ValidArgsFunction: client.CompleteGroups(factory),
		RunE:              client.RunE(o),
	}
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "Do not ask.")
	o.Follow.AddFlags(cmd, "the copies are deleted")
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

// Run purges the group.
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
	if purged(group) {
		o.sayf("annexedgroup.kubeannex.io/%s unchanged, the copies are purged already", o.Group)
		return o.Output.Print(o.Out, output.Group(group))
	}
	if err := refuse(group); err != nil {
		return err
	}
	if group.Spec.HostCopies != kubeannexv1alpha1.HostCopiesPurge || refused(group) != "" {
		if err := o.confirm(group); err != nil {
			return err
		}
		if group, err = o.begin(ctx, groups); err != nil {
			return err
		}
		o.sayf("annexedgroup.kubeannex.io/%s configured, its copies are being purged", o.Group)
	} else {
		o.sayf("annexedgroup.kubeannex.io/%s unchanged, its copies are being purged", o.Group)
	}
	if o.Follow.Wait {
		if group, err = follow.Until(ctx, groups, o.Group, o.Follow.Timeout, follow.NewDisplay(o.ErrOut), verdict); err != nil {
			return err
		}
		o.sayf("the cluster's copies of %s are purged", o.Group)
	}
	return o.Output.Print(o.Out, output.Group(group))
}

func purged(group *kubeannexv1alpha1.AnnexedGroup) bool {
	return meta.IsStatusConditionTrue(group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged)
}

// refused is why annex does not purge the copies although the present spec asks for it.
func refused(group *kubeannexv1alpha1.AnnexedGroup) string {
	condition := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged)
	if condition == nil || condition.Status == metav1.ConditionTrue || condition.Reason == kubeannexv1alpha1.ReasonPurging || condition.ObservedGeneration < group.Generation {
		return ""
	}
	return client.OneLine(condition.Message)
}

// refuse says no to what the controller would refuse later.
func refuse(group *kubeannexv1alpha1.AnnexedGroup) error {
	strays := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	switch {
	case group.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being released (phase %s): its copies are needed", group.Name, group.Status.Phase)
	case group.Status.Phase != kubeannexv1alpha1.PhaseAnnexed:
		return fmt.Errorf("%s is not annexed yet (phase %s): purge it when \"kubectl annex status %s\" shows Annexed", group.Name, group.Status.Phase, group.Name)
	case strays != nil && strays.Status == metav1.ConditionTrue:
		return fmt.Errorf("%s cannot be purged: %s", group.Name, client.OneLine(strays.Message))
	}
	return nil
}

// confirm has the person type the name of the group.
func (o *Options) confirm(group *kubeannexv1alpha1.AnnexedGroup) error {
	if o.Yes {
		return nil
	}
	var objects int64
	for _, resource := range group.Status.Resources {
		objects += resource.Objects
	}
	fmt.Fprintf(o.ErrOut, "This deletes the copies that the cluster kept of %s (objects now: %d) and cannot be undone.\n"+
		"A later release gives every object a new UID.\nType the name of the group to go on: ", o.Group, objects)
	typed, err := bufio.NewReader(o.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(typed) != o.Group {
		fmt.Fprintln(o.ErrOut)
		return errors.New("that is not the name of the group, nothing was changed: type it, or add --yes where nobody can")
	}
	return nil
}

// begin asks for the purge. Where it was asked for and refused before, annex looks
// again only if the spec changes, so the wish is taken back first.
func (o *Options) begin(ctx context.Context, groups annexclient.Interface) (*kubeannexv1alpha1.AnnexedGroup, error) {
	group, err := o.set(ctx, groups, func(group *kubeannexv1alpha1.AnnexedGroup) kubeannexv1alpha1.HostCopiesPolicy {
		if refused(group) != "" {
			return kubeannexv1alpha1.HostCopiesRetain
		}
		return kubeannexv1alpha1.HostCopiesPurge
	})
	if err != nil || group.Spec.HostCopies == kubeannexv1alpha1.HostCopiesPurge {
		return group, err
	}
	return o.set(ctx, groups, func(*kubeannexv1alpha1.AnnexedGroup) kubeannexv1alpha1.HostCopiesPolicy {
		return kubeannexv1alpha1.HostCopiesPurge
	})
}

func (o *Options) set(ctx context.Context, groups annexclient.Interface, policy func(*kubeannexv1alpha1.AnnexedGroup) kubeannexv1alpha1.HostCopiesPolicy) (*kubeannexv1alpha1.AnnexedGroup, error) {
	annexedGroups := groups.KubeannexV1alpha1().AnnexedGroups()
	var group *kubeannexv1alpha1.AnnexedGroup
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		fresh, err := annexedGroups.Get(ctx, o.Group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		fresh.Spec.HostCopies = policy(fresh)
		group, err = annexedGroups.Update(ctx, fresh, metav1.UpdateOptions{FieldManager: "kubectl-annex"})
		return err
	})
	if err != nil {
		return nil, client.Explain(err)
	}
	return group, nil
}

// verdict ends the wait when the copies are gone, or kept for a reason.
func verdict(group *kubeannexv1alpha1.AnnexedGroup) (bool, error) {
	if group == nil {
		return false, errors.New("the group was released meanwhile")
	}
	if purged(group) {
		return true, nil
	}
	if why := refused(group); why != "" {
		return false, fmt.Errorf("%s is not purged: %s", group.Name, why)
	}
	return false, refuse(group)
}

func (o *Options) sayf(format string, args ...any) {
	if o.Output.ForPeople() {
		fmt.Fprintf(o.Out, format+"\n", args...)
	}
}
