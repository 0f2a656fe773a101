// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain is the command "kubectl annex explain".
package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	"github.com/kubeannex/annex/pkg/cli/output"
)

var _ client.Steps = (*Options)(nil)

// Options are the flags and arguments.
type Options struct {
	// Target is a resource by any name that kubectl takes, or the path of a list.
	Target string
	// List are the parameters of the list. Those of a path are in the path itself.
	List kubeannexv1alpha1.ListReviewOptions
	// AllNamespaces wins over a namespace, as in kubectl get.
	AllNamespaces bool
	// SendInitialEvents asks about a watch that begins with a list.
	SendInitialEvents bool
	// Analyze also runs the list.
	Analyze bool
	Output  output.Flag

	factory client.Factory
	genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(factory client.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{factory: factory, IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "explain RESOURCE|PATH",
		Short: "Tell where a list is served from and what it costs",
		Long: `Tell where a list is served from and what it costs.

The answer names the rule by which the watch cache or etcd answers, the index that
is read, the objects that are looked at and returned, and what would have the same
for less. Nothing is read, unless --analyze asks to run the list and to put its real
figures beside the estimate; its objects are not returned. A list that the server
would refuse is refused with the same error, and you can ask about those lists only
that you may do.

A list is named by a resource, in any form that kubectl get takes, and flags; or by
its path, in quotes. Only lists can be explained, and watches that begin with one:
a get of one object or a write costs the same always.

Kinds that annex does not have are explained from the rules of the cluster's version
of kube-apiserver. The answer says what cannot be known of it.`,
		Example: `  # What does this agent's list cost?
  kubectl annex explain workflows -n prod -l app=x --field-selector spec.nodeName=n1

  # And if it were content with what the cache has?
  kubectl annex explain workflows -n prod -l app=x --limit 500 --resource-version 0

  # A line of an audit log
  kubectl annex explain '/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500'

  # Run it, too
  kubectl annex explain workflows.v1alpha1.argoproj.io -A --analyze`,
		Args:              oneTarget,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              client.RunE(o),
	}
	o.addFlags(cmd)
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.List.LabelSelector, "selector", "l", "", "Label selector, such as app=web,tier!=test.")
	flags.StringVar(&o.List.FieldSelector, "field-selector", "", "Field selector, such as spec.nodeName=n1.")
	flags.Int64Var(&o.List.Limit, "limit", 0, "The largest number of objects on a page. 0 asks for all at once. \"kubectl get\" uses 500.")
	flags.StringVar(&o.List.Continue, "continue", "", "The token with which the page before has ended.")
	flags.StringVar(&o.List.ResourceVersion, "resource-version", "", "The resourceVersion of the list. 0 is content with what the cache has; without it the list is up to date.")
	flags.StringVar((*string)(&o.List.ResourceVersionMatch), "resource-version-match", "", "How --resource-version is meant: Exact or NotOlderThan.")
	flags.BoolVar(&o.SendInitialEvents, "send-initial-events", false, "Ask about a watch that begins with all objects, as informers send it. It needs --resource-version-match=NotOlderThan.")
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "Ask about the list of all namespaces.")
	flags.BoolVar(&o.Analyze, "analyze", false, "Run the list, too, and report what it really costs.")
	o.Output.AddFlag(cmd)
	// The only error is that of a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("resource-version-match", cobra.FixedCompletions([]cobra.Completion{
		string(metav1.ResourceVersionMatchExact), string(metav1.ResourceVersionMatchNotOlderThan),
	}, cobra.ShellCompDirectiveNoFileComp))
}

// oneTarget wants one resource or path.
func oneTarget(cmd *cobra.Command, args []string) error {
	example := fmt.Sprintf("\"%s workflows -n prod\"", cmd.CommandPath())
	switch {
	case len(args) == 0 || args[0] == "":
		return fmt.Errorf("name one resource or path, for example %s", example)
	case isPath(args[0]) && len(args) > 1:
		return errors.New("name one path, in quotes: everything else is in the path itself")
	case isPath(args[0]):
		return nil
	case len(args) > 1 || strings.Contains(args[0], "/"):
		return fmt.Errorf("only lists can be explained, not the get of one object: name a resource alone, for example %s", example)
	case strings.Contains(args[0], ","):
		return fmt.Errorf("each resource is a list of its own: name one, for example %s", example)
	}
	return nil
}

// isPath tells paths, and URLs, from resources.
func isPath(target string) bool {
	return strings.HasPrefix(target, "/") || strings.Contains(target, "://")
}

// Complete takes over the arguments.
func (o *Options) Complete(args []string) {
	o.Target = args[0]
	if o.SendInitialEvents {
		o.List.SendInitialEvents = &o.SendInitialEvents
	}
}

// Validate refuses flags beside a path. What the list itself must not have is left
// to the server, whose error is the answer.
func (o *Options) Validate() error {
	if isPath(o.Target) && (o.List != kubeannexv1alpha1.ListReviewOptions{} || o.AllNamespaces) {
		return errors.New("a path says all about its list: leave out the flags for namespaces, selectors, pages and versions, or name a resource instead")
	}
	return o.Output.Validate()
}

// Run asks annex and prints the answer.
func (o *Options) Run(ctx context.Context) error {
	spec, err := o.spec()
	if err != nil {
		return err
	}
	annex, err := o.factory.Groups()
	if err != nil {
		return err
	}
	question := &kubeannexv1alpha1.ListReview{Spec: *spec}
	answer, err := annex.KubeannexV1alpha1().ListReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return client.Explain(err)
	}
	if o.Output.ForPeople() {
		return o.describe(answer)
	}
	answer = answer.DeepCopy()
	answer.SetGroupVersionKind(kubeannexv1alpha1.SchemeGroupVersion.WithKind("ListReview"))
	return o.Output.Print(o.Out, answer)
}

// spec is the list that is asked about.
func (o *Options) spec() (*kubeannexv1alpha1.ListReviewSpec, error) {
	namespace, byFlag, err := o.factory.Namespace()
	if err != nil {
		return nil, err
	}
	if isPath(o.Target) {
		if byFlag {
			return nil, errors.New("a path says itself which namespace is listed: leave out --namespace")
		}
		return &kubeannexv1alpha1.ListReviewSpec{Path: o.Target, Analyze: o.Analyze}, nil
	}
	if o.AllNamespaces {
		namespace = metav1.NamespaceAll
	}
	resource, err := o.resource(namespace)
	if err != nil {
		return nil, err
	}
	spec := &kubeannexv1alpha1.ListReviewSpec{Resource: resource, Analyze: o.Analyze}
	if (o.List != kubeannexv1alpha1.ListReviewOptions{}) {
		spec.Options = &o.List
	}
	return spec, nil
}
