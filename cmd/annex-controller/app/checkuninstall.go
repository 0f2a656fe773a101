// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
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

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/command"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

const (
	// checkInterval is the pause between two questions to an annex that does not answer.
	checkInterval = time.Second
	// checkRequestTimeout bounds one question.
	checkRequestTimeout = 10 * time.Second
)

const checkUninstallDescription = `Fails while annex has a group, and says which.

It is run before an uninstall: the objects of a group are in annex's etcd, and
without annex nobody can read them. It asks the cluster as a user does and needs
the rights to get and list annexedgroups. A cluster without the API of annex has
no groups.`

// newCheckUninstallCommand returns the command that refuses an uninstall.
func newCheckUninstallCommand(ctx context.Context) *cobra.Command {
	var kubeconfig string
	timeout := time.Minute
	cmd := &cobra.Command{
		Use:   "check-uninstall",
		Short: "Fail while annex has a group.",
		Long:  checkUninstallDescription,
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			client, err := checkClient(kubeconfig)
			if err != nil {
				return err
			}
			return checkUninstall(ctx, client, timeout)
		},
	}
	var sections cliflag.NamedFlagSets
	fs := sections.FlagSet("cluster")
	fs.StringVar(&kubeconfig, "kubeconfig", kubeconfig, "The kubeconfig file of the cluster. By default the cluster that the process runs in.")
	fs.DurationVar(&timeout, "timeout", timeout, "How long to wait for an answer of annex.")
	command.AddFlags(cmd, sections)
	return cmd
}

// checkClient is a client of the cluster. Helm shows all that is logged, so it is made
// without the warning of clientcmd about a missing kubeconfig.
func checkClient(kubeconfig string) (annexclient.Interface, error) {
	read := rest.InClusterConfig
	if kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w: name a kubeconfig by --kubeconfig", err)
	}
	config.UserAgent, config.Timeout = name, checkRequestTimeout
	client, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the cluster: %w", err)
	}
	return client, nil
}

// checkUninstall returns an error while annex has a group, or when that cannot be
// found out before the timeout.
func checkUninstall(ctx context.Context, client annexclient.Interface, timeout time.Duration) error {
	var list *kubeannexv1alpha1.AnnexedGroupList
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, checkInterval, timeout, true, func(ctx context.Context) (bool, error) {
		list, last = client.KubeannexV1alpha1().AnnexedGroups().List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(last) {
			list, last = &kubeannexv1alpha1.AnnexedGroupList{}, nil // there is no such API
		}
		if last != nil {
			klog.FromContext(ctx).Info("Waiting for annex to say which groups it has", "answer", last)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("annex does not say which groups it has: %w: bring it back, or leave this check out (helm uninstall --no-hooks) if it has none", last)
	}
	if len(list.Items) == 0 {
		return nil
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return fmt.Errorf("annex has %s, which nobody could read without it: run \"kubectl annex release GROUP --wait\" for each group first", strings.Join(names, ", "))
}
