// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/env/ports"
)

// The groups of the same kinds, whose names are equally long.
const (
	// hostGroup is served by kube-apiserver.
	hostGroup = "lab.annex.test"
	// viaGroup is served by annex and asked for at kube-apiserver.
	viaGroup = "via.annex.test"
	// directGroup is served by annex and asked for there.
	directGroup = "dir.annex.test"
	// movedGroup is adopted by a test.
	movedGroup = "mov.annex.test"
)

// enforced is the plug-in that is off by default.
const enforced = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	cluster *scenario.Cluster
	host    *env.Host
	annex   *env.Annex
	kube    kubernetes.Interface

	// metrics is where the controller shows its metrics, one of ports.
	metrics string
	ports   *ports.Range
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) error {
	begin := time.Now()
	config, err := filepath.Abs(filepath.Join("testdata", "admission.yaml"))
	if err != nil {
		return err
	}
	// Widgets are limited to namespaces with a quota for them.
	args := []string{enforced, "--admission-control-config-file=" + config}
	if suite.host, err = e.StartHost(ctx, env.HostOptions{APIServerArgs: args}); err != nil {
		return err
	}
	if suite.annex, err = e.StartAnnex(ctx, env.AnnexOptions{Host: suite.host, Replicas: 2, Args: append(args, "--apiserver-count=1")}); err != nil {
		return err
	}
	host, err := suite.host.AdminConfig()
	if err != nil {
		return err
	}
	if suite.kube, err = kubernetes.NewForConfig(host); err != nil {
		return err
	}
	if err := setupKinds(ctx, host); err != nil {
		return err
	}
	if err := setupController(ctx, e); err != nil {
		return err
	}
	fmt.Printf("a host, two replicas of annex and the controller serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

// setupKinds also starts kube-controller-manager, which learns of kinds late that come later.
func setupKinds(ctx context.Context, host *rest.Config) error {
	annex, err := suite.annex.AdminConfig(0)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for name, config := range map[string]*rest.Config{hostGroup: host, movedGroup: host, viaGroup: annex, directGroup: annex} {
		group.Go(func() error { return installKinds(groupCtx, config, name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	for _, name := range []string{viaGroup, directGroup} {
		for _, version := range []string{"v1", "v1beta1"} {
			group.Go(func() error { return suite.annex.RegisterAPIService(groupCtx, name, version) })
		}
	}
	group.Go(func() error { return suite.annex.RegisterAPIService(groupCtx, kubeannex.GroupName, "v1alpha1") })
	if err := group.Wait(); err != nil {
		return err
	}
	return suite.host.StartControllerManager(ctx)
}

func setupController(ctx context.Context, e *env.Env) error {
	var err error
	if suite.ports, err = ports.Reserve(); err != nil {
		return err
	}
	port, err := suite.ports.Take()
	if err != nil {
		return err
	}
	suite.metrics = ports.Address(port)
	controller, err := e.StartController(ctx, env.ControllerOptions{
		Host: suite.host, Annex: suite.annex, Args: []string{"--metrics-bind-address=" + suite.metrics},
	})
	if err != nil {
		return err
	}
	balanced, err := suite.annex.BalancedConfig("admin", "system:masters")
	if err != nil {
		return err
	}
	groups, err := annexclient.NewForConfig(balanced)
	if err != nil {
		return err
	}
	suite.cluster = &scenario.Cluster{Env: e, Host: suite.host, Annex: suite.annex, Controller: controller, Groups: groups}
	return nil
}

// installKinds installs gadgets, whose schema is that of the fixtures, and kinds of any shape.
func installKinds(ctx context.Context, config *rest.Config, group string) error {
	gadgets, err := env.GadgetCRD()
	if err != nil {
		return err
	}
	gadgets.Spec.Group, gadgets.Name = group, "gadgets."+group
	definitions := []*apiextensionsv1.CustomResourceDefinition{gadgets, shapeless(group, "Rollout")}
	if group != movedGroup {
		definitions = append(definitions, shapeless(group, "Widget"), shapeless(group, "Workflow"))
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, definition := range definitions {
		all.Go(func() error { return env.InstallCRD(ctx, config, definition) })
	}
	return all.Wait()
}

// shapeless is a kind that keeps whatever is in its spec.
func shapeless(group, kind string) *apiextensionsv1.CustomResourceDefinition {
	singular := string(kind[0]+'a'-'A') + kind[1:]
	plural := singular + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type:       "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", XPreserveUnknownFields: ptr.To(true)}},
				}},
			}},
		},
	}
}
