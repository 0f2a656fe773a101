// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

const (
	// viaGroup holds the kinds that annex serves through the aggregator. It is as
	// long as the group of the fixtures, so that sizes stay equal.
	viaGroup = "via.annex.test"
	// requestTimeout bounds one request, watches included.
	requestTimeout = 60 * time.Second
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	host  *env.Host
	annex *env.Annex
	// pair is a second annex: two replicas over one etcd, which tests may restart.
	pair *env.Annex

	// hostTarget serves the fixtures from kube-apiserver itself.
	hostTarget *target
	// annexTarget serves them from annex, asked at its own address.
	annexTarget *target
	// viaTarget serves them from annex through the aggregator, under viaGroup.
	viaTarget *target
	// pairTargets are the two replicas of pair.
	pairTargets []*target
}

// target is a server under test.
type target struct {
	name string
	// group replaces the group of the fixtures in requests.
	group string
	// api serves the objects and crds the definitions; they differ where the
	// aggregator is in between.
	api, crds *endpoint
	etcd      *env.Etcd
	kubectl   *env.Kubectl
}

// endpoint is a server address with a client that retries nothing.
type endpoint struct {
	config *rest.Config
	client *http.Client
}

func newEndpoint(config *rest.Config, err error) (*endpoint, error) {
	if err != nil {
		return nil, err
	}
	config.Timeout = requestTimeout
	config.UserAgent = "parity"
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", config.Host, err)
	}
	return &endpoint{config: config, client: client}, nil
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) (err error) {
	begin := time.Now()
	if suite.host, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	if err := setupHost(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return setupAnnex(groupCtx, e) })
	group.Go(func() error { return setupPair(groupCtx, e) })
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("a host, an annex and a pair of annexes serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

func setupHost(ctx context.Context) error {
	point, err := newEndpoint(suite.host.AdminConfig())
	if err != nil {
		return err
	}
	suite.hostTarget = &target{name: "host", group: env.FixtureGroup, api: point, crds: point, etcd: suite.host.Etcd}
	if suite.hostTarget.kubectl, err = suite.host.Kubectl(); err != nil {
		return err
	}
	return installFixtures(ctx, suite.hostTarget)
}

func setupAnnex(ctx context.Context, e *env.Env) (err error) {
	if suite.annex, err = e.StartAnnex(ctx, env.AnnexOptions{Host: suite.host}); err != nil {
		return err
	}
	direct, err := newEndpoint(suite.annex.AdminConfig(0))
	if err != nil {
		return err
	}
	suite.annexTarget = &target{name: "annex", group: env.FixtureGroup, api: direct, crds: direct, etcd: suite.annex.Etcd}
	suite.viaTarget = &target{name: "annex behind the aggregator", group: viaGroup, api: suite.hostTarget.api, crds: direct, etcd: suite.annex.Etcd}
	if suite.annexTarget.kubectl, err = suite.annex.Kubectl(0); err != nil {
		return err
	}
	if suite.viaTarget.kubectl, err = suite.host.Kubectl(); err != nil {
		return err
	}
	for _, target := range []*target{suite.annexTarget, suite.viaTarget} {
		if err := installFixtures(ctx, target); err != nil {
			return err
		}
	}
	for _, version := range []string{"v1", "v1beta1"} {
		if err := suite.annex.RegisterAPIService(ctx, viaGroup, version); err != nil {
			return err
		}
	}
	return nil
}

func setupPair(ctx context.Context, e *env.Env) (err error) {
	suite.pair, err = e.StartAnnex(ctx, env.AnnexOptions{Name: "pair", Host: suite.host, Replicas: 2})
	if err != nil {
		return err
	}
	for i := range suite.pair.Replicas {
		point, err := newEndpoint(suite.pair.AdminConfig(i))
		if err != nil {
			return err
		}
		suite.pairTargets = append(suite.pairTargets, &target{
			name: fmt.Sprintf("replica %d", i), group: env.FixtureGroup, api: point, crds: point, etcd: suite.pair.Etcd,
		})
	}
	return nil
}

func installFixtures(ctx context.Context, target *target) error {
	for _, fixture := range []func() (*apiextensionsv1.CustomResourceDefinition, error){env.GadgetCRD, env.PlanetCRD} {
		crd, err := fixture()
		if err != nil {
			return err
		}
		crd.Spec.Group = target.group
		crd.Name = crd.Spec.Names.Plural + "." + target.group
		if err := env.InstallCRD(ctx, target.crds.config, crd); err != nil {
			return err
		}
		for _, version := range crd.Spec.Versions {
			path := "/apis/" + target.group + "/" + version.Name + "/" + crd.Spec.Names.Plural
			if err := waitForCache(ctx, target.crds, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitForCache waits until a kind is listed from the cache: until the cache is
// filled, some lists and every watch are refused with 429.
func waitForCache(ctx context.Context, point *endpoint, path string) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, point.config.Host+path+"?resourceVersion=0", nil)
		if err != nil {
			return false, err
		}
		answer, err := point.client.Do(request)
		if err != nil {
			return false, err
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("waiting for the cache of %s: %w", path, err)
	}
	return nil
}
