// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kubeannex/annex/cmd/annex-controller/app/options"
	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/command"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

const (
	// checkInterval is the pause between two questions that are not answered.
	checkInterval = time.Second
	// checkRequestTimeout bounds one question.
	checkRequestTimeout = 10 * time.Second
)

const checkUninstallDescription = `Fails while annex has a group, and says which.

It is run before an uninstall: the objects of a group are in annex's etcd, and
without annex nobody can read them. It asks the cluster as a user does, which
groups are sent to annex and which annex has, and needs the rights to list
apiservices and annexedgroups. A cluster that sends nothing to annex and does not
have its API has no groups.`

// newCheckUninstallCommand returns the command that refuses an uninstall.
func newCheckUninstallCommand(ctx context.Context) *cobra.Command {
	var kubeconfig string
	service, timeout := options.DefaultAnnexService, time.Minute
	cmd := &cobra.Command{
		Use:   "check-uninstall",
		Short: "Fail while annex has a group.",
		Long:  checkUninstallDescription,
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			check, err := newUninstallCheck(kubeconfig, service)
			if err != nil {
				return err
			}
			return check.run(ctx, timeout)
		},
	}
	var sections cliflag.NamedFlagSets
	fs := sections.FlagSet("cluster")
	fs.StringVar(&kubeconfig, "kubeconfig", kubeconfig, "The kubeconfig file of the cluster. By default the cluster that the process runs in.")
	fs.StringVar(&service, "annex-service", service, "The Service of annex that APIServices name, as namespace/name:port.")
	fs.DurationVar(&timeout, "timeout", timeout, "How long to wait for answers.")
	command.AddFlags(cmd, sections)
	return cmd
}

// uninstallCheck finds groups that nobody could read without annex.
type uninstallCheck struct {
	annex    annexclient.Interface
	services aggregatorclient.Interface
	// service is annex.
	service *apiregistrationv1.ServiceReference
}

// newUninstallCheck makes the clients. Helm shows all that is logged, so they are
// made without the warning of clientcmd about a missing kubeconfig.
func newUninstallCheck(kubeconfig, service string) (*uninstallCheck, error) {
	named, err := options.ParseService(service)
	if err != nil {
		return nil, err
	}
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w: name a kubeconfig by --kubeconfig", err)
	}
	config.UserAgent, config.Timeout = name, checkRequestTimeout
	check := &uninstallCheck{service: named}
	if check.annex, err = annexclient.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client of annex: %w", err)
	}
	if check.services, err = aggregatorclient.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client of the cluster: %w", err)
	}
	return check, nil
}

// run returns an error while annex has a group, or when that cannot be found out
// before the timeout. Routes are asked for first: they are there when annex or the
// APIService of its own API is not.
func (c *uninstallCheck) run(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	routed, err := answered(ctx, c.routed)
	if err != nil {
		return fmt.Errorf("the cluster does not say which groups it sends to annex: %w: mend that, or leave this check out (helm uninstall --no-hooks) if there is none", err)
	}
	if len(routed) > 0 {
		return fmt.Errorf("%w, or see \"Uninstall is refused\" in docs/install.md if annex does not know it", refusal(routed))
	}
	known, err := answered(ctx, c.known)
	if err != nil {
		return fmt.Errorf("annex does not say which groups it has: %w: bring it back, or leave this check out (helm uninstall --no-hooks) if it has none", err)
	}
	if len(known) > 0 {
		return refusal(known)
	}
	return nil
}

func refusal(groups []string) error {
	return fmt.Errorf("annex has %s, which nobody could read without it: run \"kubectl annex release GROUP --wait\" for each group first", strings.Join(groups, ", "))
}

// answered asks until there is an answer. After the end of ctx it returns the last error.
func answered(ctx context.Context, ask func(context.Context) ([]string, error)) ([]string, error) {
	var groups []string
	last := errors.New("not asked yet")
	err := wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		groups, last = ask(ctx)
		if last != nil {
			klog.FromContext(ctx).Info("Waiting for an answer", "answer", last)
		}
		return last == nil, nil
	})
	if err != nil {
		return nil, last
	}
	return groups, nil
}

// routed are the groups that the cluster sends to annex, without that of annex itself.
func (c *uninstallCheck) routed(ctx context.Context) ([]string, error) {
	list, err := c.services.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var groups []string
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Service == nil || spec.Service.Namespace != c.service.Namespace || spec.Service.Name != c.service.Name || spec.Group == kubeannex.GroupName {
			continue
		}
		groups = append(groups, spec.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// known are the groups that annex knows. Where its API is not there it knows none.
func (c *uninstallCheck) known(ctx context.Context) ([]string, error) {
	list, err := c.annex.KubeannexV1alpha1().AnnexedGroups().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	groups := make([]string, 0, len(list.Items))
	for i := range list.Items {
		groups = append(groups, list.Items[i].Name)
	}
	return groups, nil
}
