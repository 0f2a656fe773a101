// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client gives the commands of the plugin what they reach the cluster
// with, and turns what the cluster answers into words for its users.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/pkg/preflight"
)

// Factory makes clients when a command runs, not before: help and completion of
// flags work without a cluster.
type Factory interface {
	// Groups is for AnnexedGroups, through the cluster's kube-apiserver.
	Groups() (annexclient.Interface, error)
	// Preflight is for all the rest.
	Preflight() (preflight.Clients, error)
	// Mapper knows resources by all the names that kubectl takes. What it has read
	// of the cluster is kept on disk, where kubectl keeps it too.
	Mapper() (meta.RESTMapper, error)
	// Namespace is the one that kubectl would use, and whether a flag names it.
	Namespace() (name string, byFlag bool, err error)
}

var _ Factory = (*flags)(nil)

// flags makes clients from the flags that kubectl has too.
type flags struct {
	getter genericclioptions.RESTClientGetter
	errOut io.Writer
}

// NewFactory returns a Factory for the usual flags. Warnings of the server go to errOut.
func NewFactory(getter genericclioptions.RESTClientGetter, errOut io.Writer) Factory {
	return &flags{getter: getter, errOut: errOut}
}

func (f *flags) config() (*rest.Config, error) {
	config, err := f.getter.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "kubectl-annex"
	// One run asks for little, but a preflight looks at every resource of the cluster once.
	config.QPS, config.Burst = 50, 300
	config.WarningHandler = rest.NewWarningWriter(f.errOut, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// Groups implements Factory.
func (f *flags) Groups() (annexclient.Interface, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	client, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// Preflight implements Factory.
func (f *flags) Preflight() (preflight.Clients, error) {
	var clients preflight.Clients
	config, err := f.config()
	if err != nil {
		return clients, err
	}
	// Looking at every resource, deprecated ones too, would warn of things that are not the user's.
	config.WarningHandler = rest.NoWarnings{}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return clients, fmt.Errorf("making a client: %w", err)
	}
	var errs [5]error
	clients.Kube, errs[0] = kubernetes.NewForConfigAndClient(config, httpClient)
	clients.Definitions, errs[1] = apiextensionsclient.NewForConfigAndClient(config, httpClient)
	clients.APIServices, errs[2] = aggregatorclient.NewForConfigAndClient(config, httpClient)
	clients.Dynamic, errs[3] = dynamic.NewForConfigAndClient(config, httpClient)
	clients.Metadata, errs[4] = metadata.NewForConfigAndClient(config, httpClient)
	if err := errors.Join(errs[:]...); err != nil {
		return clients, fmt.Errorf("making a client: %w", err)
	}
	return clients, nil
}

// Mapper implements Factory.
func (f *flags) Mapper() (meta.RESTMapper, error) {
	mapper, err := f.getter.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return mapper, nil
}

// Namespace implements Factory.
func (f *flags) Namespace() (name string, byFlag bool, err error) {
	name, byFlag, err = f.getter.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", false, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return name, byFlag, nil
}

// Get returns the AnnexedGroup of a group, nil if there is none.
func Get(ctx context.Context, client annexclient.Interface, group string) (*kubeannexv1alpha1.AnnexedGroup, error) {
	object, err := client.KubeannexV1alpha1().AnnexedGroups().Get(ctx, group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !unserved(err) {
		return nil, nil
	}
	if err != nil {
		return nil, Explain(err)
	}
	return object, nil
}

// NotAnnexed is the error for a group that annex does not have.
func NotAnnexed(group string) error {
	return fmt.Errorf("%s is not annexed: \"kubectl annex status\" lists the groups that are", group)
}

// Explain says what to do about an answer that means that annex is not there.
// Any other error is only shortened to what the server said.
func Explain(err error) error {
	switch {
	case unserved(err):
		return errors.New("annex is not installed in this cluster: install it first, \"kubectl get apiservice v1alpha1.kubeannex.io\" must find it")
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("annex does not answer (%s): see why with \"kubectl describe apiservice v1alpha1.kubeannex.io\"", OneLine(err.Error()))
	}
	return err
}

// unserved tells a path that nothing serves from an object that is not there:
// only the first is answered without a Status.
func unserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// OneLine is a text without line feeds.
func OneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// OneGroup wants exactly one argument.
func OneGroup(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("name one API group, for example \"%s argoproj.io\"", cmd.CommandPath())
	}
	return nil
}

// CompleteGroups completes the names of groups that annex has.
func CompleteGroups(factory Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := factory.Groups()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := client.KubeannexV1alpha1().AnnexedGroups().List(cmd.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for i := range list.Items {
			names = append(names, cobra.CompletionWithDesc(list.Items[i].Name, string(list.Items[i].Status.Phase)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
