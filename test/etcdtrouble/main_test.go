// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtrouble

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	testTimeout = 2 * time.Minute
	namespace   = "t"
	// quota is that of annex's etcd and of the judge's.
	quota = 64 << 20
	// compaction is how often a replica drops old revisions.
	compaction = time.Second
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	// judge serves the kind itself, from an etcd as small as annex's.
	judge *env.Host
	host  *env.Host
	annex *env.Annex
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) error {
	begin := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return setupJudge(groupCtx, e) })
	group.Go(func() error { return setupAnnex(groupCtx, e) })
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("a judge, a host and two replicas serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

func smallEtcd() env.EtcdOptions {
	return env.EtcdOptions{Args: []string{fmt.Sprintf("--quota-backend-bytes=%d", quota)}}
}

func setupJudge(ctx context.Context, e *env.Env) (err error) {
	interval := "--etcd-compaction-interval=" + compaction.String()
	suite.judge, err = e.StartHost(ctx, env.HostOptions{Name: "judge", Etcd: smallEtcd(), APIServerArgs: []string{interval}})
	if err != nil {
		return err
	}
	config, err := suite.judge.AdminConfig()
	if err != nil {
		return err
	}
	if err := env.InstallGadgets(ctx, config); err != nil {
		return err
	}
	return env.EnsureNamespace(ctx, config, namespace)
}

func setupAnnex(ctx context.Context, e *env.Env) (err error) {
	if suite.host, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	cluster, err := suite.host.AdminConfig()
	if err != nil {
		return err
	}
	if err := env.EnsureNamespace(ctx, cluster, namespace); err != nil {
		return err
	}
	suite.annex, err = e.StartAnnex(ctx, env.AnnexOptions{
		Host: suite.host, Replicas: 2, Etcd: smallEtcd(), Args: []string{"--etcd-compaction-interval=" + compaction.String()},
	})
	if err != nil {
		return err
	}
	direct, err := suite.annex.AdminConfig(0)
	if err != nil {
		return err
	}
	if err := env.InstallGadgets(ctx, direct); err != nil {
		return err
	}
	if err := suite.annex.RegisterAPIService(ctx, env.FixtureGroup, "v1"); err != nil {
		return err
	}
	return declareGroup(ctx, direct)
}

// declareGroup makes the group one that is served, with an index that a test changes.
func declareGroup(ctx context.Context, config *rest.Config) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	group := &v1alpha1.AnnexedGroup{Spec: v1alpha1.AnnexedGroupSpec{Resources: []v1alpha1.AnnexedResourceSpec{{
		Resource: "gadgets", IndexLabels: []string{"team"},
	}}}}
	group.Name = env.FixtureGroup
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	if group, err = groups.Create(ctx, group, metav1.CreateOptions{}); err != nil {
		return err
	}
	group.Status.Serving = v1alpha1.ServingOpen
	if _, err := groups.UpdateStatus(ctx, group, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return waitOpen(ctx)
}

// waitOpen waits until every replica serves the group, and has read the status in which it does.
func waitOpen(ctx context.Context) error {
	for i := range suite.annex.Replicas {
		config, err := suite.annex.AdminConfig(i)
		if err != nil {
			return err
		}
		client, err := versioned.NewForConfig(config)
		if err != nil {
			return err
		}
		gadgets, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			status := v1alpha1.ReplicaStatus{}
			body, err := client.KubeannexV1alpha1().RESTClient().Get().Resource("annexedgroups").Name(env.FixtureGroup).
				SubResource(v1alpha1.ReplicaSubresource).DoRaw(ctx)
			if err != nil || !serves(body, &status) {
				return false, nil
			}
			_, err = gadgets.Resource(env.GadgetResource("v1")).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			return fmt.Errorf("waiting until replica %d serves: %w", i, err)
		}
	}
	return nil
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// etcdClient reaches an etcd past everything else.
func etcdClient(t *testing.T, etcd *env.Etcd) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // nothing is lost with it
	return client
}

// clusterConfig is an administrator at kube-apiserver.
func clusterConfig(t *testing.T, host *env.Host) *rest.Config {
	t.Helper()
	config, err := host.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// replicaConfig is an administrator at one replica.
func replicaConfig(t *testing.T, replica int) *rest.Config {
	t.Helper()
	config, err := suite.annex.AdminConfig(replica)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
