// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// awaitReplica waits until the replica reports what is wanted.
func awaitReplica(t *testing.T, world *adopted.World, what string, done func(v1alpha1.ReplicaStatus) bool) v1alpha1.ReplicaStatus {
	t.Helper()
	var status v1alpha1.ReplicaStatus
	await(t, what, func() bool {
		status = world.Replica(t)
		return done(status)
	})
	return status
}

func allReady(status v1alpha1.ReplicaStatus) bool {
	for _, resource := range status.Resources {
		if !resource.Ready {
			return false
		}
	}
	return len(status.Resources) > 0
}

func TestReplicaFollowsDefinitions(t *testing.T) {
	world := adopted.Start(t)
	world.Import(t, "gadgets", gadgets(100)...)
	before := awaitReplica(t, world, "the caches", allReady)
	want := []v1alpha1.ReplicaResource{
		{Resource: "gadgets", DefinitionGeneration: 1, Established: true, Ready: true},
		{Resource: "planets", DefinitionGeneration: 1, Established: true, Ready: true},
	}
	if diff := cmp.Diff(want, before.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	client, err := apiextensionsclient.NewForConfig(world.Config(t, adopted.Controller))
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), "gadgets.lab.annex.test", types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitReplica(t, world, "the second generation", func(status v1alpha1.ReplicaStatus) bool {
		return allReady(status) && status.Resources[0].DefinitionGeneration == 2
	})
	world.ServeNow(t, v1alpha1.ServingReadOnly)
	list, err := world.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 100 {
		t.Errorf("the cache has %d objects, want 100", len(list.Items))
	}
}

// TestRevisionIsAboveWhatAListSays is what the controller tells annex and the cluster apart by.
func TestRevisionIsAboveWhatWasWritten(t *testing.T) {
	world := adopted.Start(t)
	first := world.Replica(t)
	if first.Revision < embedded.DefaultRevisionFloor || first.DatabaseBytes == 0 || first.QuotaBytes != embedded.DefaultQuotaBackendBytes {
		t.Errorf("replica: got %+v", first)
	}
	world.Import(t, "gadgets", gadgets(10)...)
	if second := world.Replica(t); second.Revision < first.Revision+10 {
		t.Errorf("revision after 10 writes: got %d, before it was %d", second.Revision, first.Revision)
	}
}

func TestGroupInAnEtcdOfItsOwn(t *testing.T) {
	server, err := embedded.Start(t.Context(), embedded.Options{RootDir: testserver.ShortTempDir(t), RevisionFloor: 1 << 52})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	world := adopted.Start(t, "--etcd-servers-overrides=lab.annex.test/gadgets#"+server.Endpoints()[0]+",lab.annex.test/planets#"+server.Endpoints()[0])
	result := world.Import(t, "gadgets", gadgets(10)...)
	values, _ := stored(t, etcdOf(t, server.Endpoints()), "/registry/lab.annex.test/gadgets/t/")
	if len(values) != 10 {
		t.Errorf("the etcd of the group has %d objects, want 10", len(values))
	}
	if got := world.Digest(t, "gadgets"); got.Digest != result.Digest || got.Objects != 10 {
		t.Errorf("digest: got %+v, want %+v", got, result)
	}
	if got := world.Replica(t); got.Revision < 1<<52 || got.DatabaseBytes == 0 {
		t.Errorf("replica: got %+v, want what is known of the group's own etcd", got)
	}
}

// TestStandaloneHasNoGate shows that a server without a cluster serves a group whatever its AnnexedGroup says.
func TestStandaloneHasNoGate(t *testing.T) {
	server := testserver.StartStandalone(t)
	if err := env.InstallGadgets(t.Context(), server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	if server.Config.ExtraConfig.Gated {
		t.Error("a standalone server has a gate")
	}
}

// TestDeletionIsNotAnImport keeps the meaning of events: what never was is not counted.
func TestDeletionOfNothing(t *testing.T) {
	world := adopted.Start(t)
	var result v1alpha1.ImportResult
	world.Subresource(t, adopted.Controller, http.MethodPost, "import?resource=gadgets", adopted.Stream(t, watch.Deleted, gadgets(3)...)).Decode(t, &result)
	if result.Deleted != 0 || result.Written != 0 {
		t.Errorf("result: got %+v", result)
	}
}
