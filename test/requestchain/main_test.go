// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// testTimeout bounds every test of this package.
const testTimeout = 3 * time.Minute

// remembered is how long annex remembers what the cluster has decided in the rbac world.
const remembered = 2 * time.Second

// judgeGroup is that of the gadgets that kube-apiserver serves itself.
const judgeGroup = "judge.annex.test"

// world is a cluster with gadgets of two groups, one served by annex.
type world struct {
	host  *env.Host
	annex *env.Annex
	// admin is a client of the cluster that may do everything.
	admin kubernetes.Interface
}

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	// rbac takes anonymous requests and writes audit logs, abac neither. In webhook, a webhook decides.
	rbac, abac, webhook *world
	// recorder is the webhook of the rbac world.
	recorder *recorder
	// hostAudit and annexAudit are what its servers record.
	hostAudit, annexAudit *auditTrail
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) error {
	begin := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return setupRBAC(groupCtx, e) })
	group.Go(func() error { return setupABAC(groupCtx, e) })
	group.Go(func() error { return setupWebhook(groupCtx, e) })
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("three clusters with annex serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

func setupRBAC(ctx context.Context, e *env.Env) (err error) {
	dir, err := e.Mkdir("audit")
	if err != nil {
		return err
	}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	suite.recorder = startRecorder(e)
	if suite.hostAudit, err = newAuditTrail(e, dir, "host"); err != nil {
		return err
	}
	if suite.annexAudit, err = newAuditTrail(e, dir, "annex"); err != nil {
		return err
	}
	suite.rbac, err = startWorld(ctx, e,
		env.HostOptions{Name: "rbac", APIServerArgs: suite.hostAudit.flags(policy)},
		env.AnnexOptions{Args: append(suite.annexAudit.flags(policy),
			"--authorization-webhook-cache-authorized-ttl="+remembered.String(), "--authorization-webhook-cache-unauthorized-ttl="+remembered.String())})
	if err != nil {
		return err
	}
	if err := grant(ctx, suite.rbac.admin); err != nil {
		return err
	}
	return suite.recorder.install(ctx, suite.rbac.admin)
}

func setupABAC(ctx context.Context, e *env.Env) error {
	dir, err := e.Mkdir("abac-policy")
	if err != nil {
		return err
	}
	policy, err := env.WriteABACPolicy(dir, abacRules()...)
	if err != nil {
		return err
	}
	suite.abac, err = startWorld(ctx, e,
		env.HostOptions{
			Name: "abac", AuthorizationMode: "ABAC",
			// The log tells when a new front-proxy certificate is used.
			APIServerArgs: []string{"--authorization-policy-file=" + policy, "--anonymous-auth=false", "--vmodule=dynamic_serving_content=2"},
		},
		env.AnnexOptions{Args: []string{"--anonymous-auth=false"}})
	return err
}

// startWorld starts a cluster and an annex with an etcd of its own, and gadgets in both.
func startWorld(ctx context.Context, e *env.Env, hostOptions env.HostOptions, annexOptions env.AnnexOptions) (*world, error) {
	w := &world{}
	var err error
	if w.host, err = e.StartHost(ctx, hostOptions); err != nil {
		return nil, err
	}
	config, err := w.host.AdminConfig()
	if err != nil {
		return nil, err
	}
	if w.admin, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	annexOptions.Host, annexOptions.Embedded = w.host, true
	if w.annex, err = e.StartAnnex(ctx, annexOptions); err != nil {
		return nil, err
	}
	annexConfig, err := w.annex.AdminConfig(0)
	if err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return installGadgets(groupCtx, config, judgeGroup) })
	group.Go(func() error {
		if err := installGadgets(groupCtx, annexConfig, env.FixtureGroup); err != nil {
			return err
		}
		return w.annex.RegisterAPIService(groupCtx, env.FixtureGroup, "v1")
	})
	for _, namespace := range namespaces() {
		group.Go(func() error { return env.EnsureNamespace(groupCtx, config, namespace) })
	}
	return w, group.Wait()
}

// installGadgets installs the fixture under a group.
func installGadgets(ctx context.Context, config *rest.Config, group string) error {
	crd, err := env.GadgetCRD()
	if err != nil {
		return err
	}
	crd.Name, crd.Spec.Group = crd.Spec.Names.Plural+"."+group, group
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{crd.Spec.Versions[0]}
	return env.InstallCRD(ctx, config, crd)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}
