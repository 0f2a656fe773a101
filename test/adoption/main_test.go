// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	env     *env.Env
	cluster *scenario.Cluster
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) (err error) {
	begin := time.Now()
	suite.env = e
	suite.cluster, err = scenario.Start(ctx, e, scenario.Options{
		APIServers: 2, Replicas: 2,
		// Told of several servers, a definition is not established for 5 s, in the hope that all know
		// it then. The controller asks every replica instead; the folder kill runs with that delay.
		AnnexArgs: []string{"--apiserver-count=1"},
		// No request of these tests lives longer than that.
		ControllerArgs: []string{"--host-request-timeout=3s"},
	})
	if err != nil {
		return err
	}
	fmt.Printf("two kube-apiservers, two replicas of annex and the controller serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

// adopt moves a group into annex and returns the AnnexedGroup.
func adopt(t *testing.T, group *scenario.Group) *kubeannexv1alpha1.AnnexedGroup {
	t.Helper()
	begin := time.Now()
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{AllowProtectedGroup: true})
	annexed := group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	fence := time.Duration(0)
	if annexed.Status.FenceDuration != nil {
		fence = annexed.Status.FenceDuration.Duration
	}
	t.Logf("%s annexed after %s, fence %s", group.Name, time.Since(begin).Round(time.Millisecond), fence.Round(time.Millisecond))
	return annexed
}
