// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// testTimeout bounds every test of this package.
const testTimeout = 3 * time.Minute

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	// judge is a host that serves the CRDs itself.
	judge *env.Host
	// host sends the group of the CRDs to annex.
	host  *env.Host
	annex *env.Annex
	// webhook converts morphs for both.
	webhook *env.ConversionWebhook
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) (err error) {
	begin := time.Now()
	if suite.webhook, err = e.StartConversionWebhook(); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return setupJudge(groupCtx, e) })
	group.Go(func() error { return setupAnnex(groupCtx, e) })
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("two hosts and two annex replicas serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

func setupJudge(ctx context.Context, e *env.Env) (err error) {
	if suite.judge, err = e.StartHost(ctx, env.HostOptions{Name: "judge"}); err != nil {
		return err
	}
	config, err := suite.judge.AdminConfig()
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, config); err != nil {
		return err
	}
	return suite.judge.StartControllerManager(ctx)
}

func setupAnnex(ctx context.Context, e *env.Env) (err error) {
	if suite.host, err = e.StartHost(ctx, env.HostOptions{Name: "host"}); err != nil {
		return err
	}
	suite.annex, err = e.StartAnnex(ctx, env.AnnexOptions{Host: suite.host, Replicas: 2, Etcd: env.EtcdOptions{TLS: true}})
	if err != nil {
		return err
	}
	config, err := suite.annex.AdminConfig(0)
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, config); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, version := range []string{"v1", "v1beta1", "v2"} {
		group.Go(func() error { return suite.annex.RegisterAPIService(groupCtx, env.FixtureGroup, version) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return suite.host.StartControllerManager(ctx)
}

func installCRDs(ctx context.Context, config *rest.Config) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, fixture := range []func() (*apiextensionsv1.CustomResourceDefinition, error){
		env.GadgetCRD,
		env.PlanetCRD,
		func() (*apiextensionsv1.CustomResourceDefinition, error) { return env.MorphCRD(suite.webhook) },
	} {
		crd, err := fixture()
		if err != nil {
			return err
		}
		group.Go(func() error { return env.InstallCRD(ctx, config, crd) })
	}
	return group.Wait()
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}
