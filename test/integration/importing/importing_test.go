// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// gadget is a small object as a kube-apiserver hands it out.
func gadget(name string, size int64) *unstructured.Unstructured {
	object := env.Gadget("t", name, map[string]any{"size": size, "color": "red"})
	object.SetUID(types.UID("uid-of-" + name))
	object.SetResourceVersion("123")
	object.SetGeneration(1)
	return object
}

func gadgets(n int) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, n)
	for i := range objects {
		objects[i] = gadget(fmt.Sprintf("g%04d", i), int64(i))
	}
	return objects
}

// everything are objects with all that a server sets by itself.
func everything(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	texts := map[string]string{
		"gadgets": `{"apiVersion":"lab.annex.test/v1","kind":"Gadget",
			"metadata":{"name":"full","namespace":"t","uid":"2d1c0b6e-0c3f-4a0e-9d7e-3f1f7b8a9c01","resourceVersion":"4711","generation":17,
				"creationTimestamp":"2019-12-31T23:59:59Z","deletionTimestamp":"2020-06-01T00:00:00Z","deletionGracePeriodSeconds":0,
				"labels":{"a":"b"},"annotations":{"text":"<ä> & \"€\" \u2028 \n"},"finalizers":["lab.annex.test/hold","b.test/c"],
				"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"11111111-2222-3333-4444-555555555555","controller":true,"blockOwnerDeletion":true}],
				"managedFields":[{"manager":"kubectl","operation":"Apply","apiVersion":"lab.annex.test/v1beta1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1",
					"fieldsV1":{"f:spec":{"f:size":{}}}},{"manager":"ctl","operation":"Update","apiVersion":"lab.annex.test/v1","time":"2020-01-02T00:00:00Z",
					"fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:size":{}}},"subresource":"status"}]},
			"spec":{"color":"blue","size":2147483647,"hot":false,"note":""},
			"status":{"size":3,"sel":"a=b","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`,
		"planets": `{"apiVersion":"lab.annex.test/v1","kind":"Planet",
			"metadata":{"name":"full","uid":"2d1c0b6e-0c3f-4a0e-9d7e-3f1f7b8a9c02","resourceVersion":"4712","generation":1,"creationTimestamp":"2019-12-31T23:59:59Z"},
			"spec":{"fraction":0.1,"long":9007199254740993,"big":1e+30,"small":-2.5e-9,"deep":[[{"x":[]}],{}],"empty":{},"text":"\b\f\u0001"}}`,
	}
	objects := map[string]*unstructured.Unstructured{}
	for resource, text := range texts {
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		objects[resource] = object
	}
	return objects
}

// etcdOf is a client of the server's etcd.
func etcdOf(t *testing.T, servers []string) *clientv3.Client {
	t.Helper()
	client, err := etcdclient.New(t.Context(), storagebackend.TransportConfig{ServerList: servers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // it was only read from
	return client
}

func defaultEtcd(t *testing.T, world *adopted.World) *clientv3.Client {
	t.Helper()
	return etcdOf(t, world.Options.Etcd.Generic.StorageConfig.Transport.ServerList)
}

// stored are the values and revisions below a key.
func stored(t *testing.T, client *clientv3.Client, prefix string) (values map[string]string, revisions map[string]int64) {
	t.Helper()
	response, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	values, revisions = map[string]string{}, map[string]int64{}
	for _, kv := range response.Kvs {
		values[string(kv.Key)], revisions[string(kv.Key)] = string(kv.Value), kv.ModRevision
	}
	return values, revisions
}

func TestObjectsSurviveByteForByte(t *testing.T) {
	world := adopted.Start(t)
	keys := map[string]string{"gadgets": "/registry/lab.annex.test/gadgets/t/full", "planets": "/registry/lab.annex.test/planets/full"}
	etcd := defaultEtcd(t, world)
	objects := everything(t)
	for resource, object := range objects {
		sent := object.DeepCopy()
		result := world.Import(t, resource, object)
		sent.SetResourceVersion("")
		canonical, err := json.Marshal(sent.Object)
		if err != nil {
			t.Fatal(err)
		}
		values, _ := stored(t, etcd, "/registry/lab.annex.test/"+resource+"/")
		if diff := cmp.Diff(map[string]string{keys[resource]: string(canonical) + "\n"}, values); diff != "" {
			t.Errorf("%s in etcd (-want +got):\n%s", resource, diff)
		}
		var want digest.Set
		want.Add(digest.OfBytes(canonical))
		if diff := cmp.Diff(v1alpha1.ImportResult{Written: 1, Digest: want.String()}, result); diff != "" {
			t.Errorf("%s: result (-want +got):\n%s", resource, diff)
		}
	}
	world.ServeNow(t, v1alpha1.ServingOpen)
	client := world.HTTP(t, adopted.Somebody)
	for resource, path := range map[string]string{"gadgets": "v1/namespaces/t/gadgets/full", "planets": "v1/planets/full"} {
		for _, query := range []string{"", "?resourceVersion=0"} {
			answer, err := adopted.Do(t.Context(), client, http.MethodGet, world.URL("/apis/lab.annex.test/"+path+query), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := &unstructured.Unstructured{}
			if err := utiljson.Unmarshal(answer.Body, &got.Object); err != nil {
				t.Fatal(err)
			}
			if got.GetResourceVersion() == "" {
				t.Errorf("%s has no resource version", resource)
			}
			want := objects[resource].DeepCopy()
			want.SetResourceVersion(got.GetResourceVersion())
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("%s by the API (-want +got):\n%s", resource, diff)
			}
		}
	}
	// The deletion that had begun elsewhere ends here.
	resource := world.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).Namespace("t")
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := resource.Patch(t.Context(), "full", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := world.Digest(t, "gadgets").Objects; n != 0 {
		t.Errorf("after the last finalizer was removed there are %d objects", n)
	}
}

func TestImportIsIdempotent(t *testing.T) {
	world := adopted.Start(t)
	etcd := defaultEtcd(t, world)
	objects := gadgets(50)
	first := world.Import(t, "gadgets", objects...)
	_, before := stored(t, etcd, "/registry/lab.annex.test/gadgets/")
	second := world.Import(t, "gadgets", objects...)
	_, after := stored(t, etcd, "/registry/lab.annex.test/gadgets/")
	if diff := cmp.Diff(v1alpha1.ImportResult{Written: 50, Digest: first.Digest}, first); diff != "" {
		t.Errorf("first import (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha1.ImportResult{Unchanged: 50, Digest: first.Digest}, second); diff != "" {
		t.Errorf("second import (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("revisions (-before +after):\n%s", diff)
	}
	objects[7].SetUID("another")
	if got := world.Import(t, "gadgets", objects...); got.Written != 1 || got.Unchanged != 49 {
		t.Errorf("with one change: got %+v", got)
	}
}

func TestEventsOfOneObjectKeepTheirOrder(t *testing.T) {
	world := adopted.Start(t)
	body := adopted.Stream(t, watch.Added, gadgets(20)...)
	for round := range 20 {
		for i := range 20 {
			object := gadget(fmt.Sprintf("g%04d", i), int64(1000+round))
			body.ReadFrom(adopted.Stream(t, watch.Modified, object)) //nolint:errcheck // from one buffer into another
			if round == 10 {
				body.ReadFrom(adopted.Stream(t, watch.Deleted, object)) //nolint:errcheck // from one buffer into another
			}
		}
	}
	body.ReadFrom(adopted.Stream(t, watch.Deleted, gadget("g0000", 0), gadget("never", 0))) //nolint:errcheck // from one buffer into another
	var result v1alpha1.ImportResult
	world.Subresource(t, adopted.Controller, http.MethodPost, "import?resource=gadgets", body).Decode(t, &result)
	if result.Written != 21*20 || result.Deleted != 21 {
		t.Errorf("result: got %+v, want 420 written and 21 deleted", result)
	}
	world.ServeNow(t, v1alpha1.ServingReadOnly)
	list, err := world.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 19 {
		t.Errorf("got %d objects, want 19", len(list.Items))
	}
	for _, item := range list.Items {
		if size, _, _ := unstructured.NestedInt64(item.Object, "spec", "size"); size != 1019 {
			t.Errorf("%s: got size %d, want the last one, 1019", item.GetName(), size)
		}
	}
}

// listDigest is computed as the controller does.
func listDigest(t *testing.T, world *adopted.World, options metav1.ListOptions) string {
	t.Helper()
	list, err := world.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	var total digest.Set
	for _, item := range list.Items {
		entry, err := digest.OfObject(item.Object)
		if err != nil {
			t.Fatal(err)
		}
		total.Add(entry)
	}
	return total.String()
}

func TestDigestIsThatOfAList(t *testing.T) {
	world := adopted.Start(t)
	imported := world.Import(t, "gadgets", append(gadgets(1200), everything(t)["gadgets"])...)
	if got := world.Digest(t, "gadgets"); got.Digest != imported.Digest || got.Objects != 1201 {
		t.Errorf("after the import: got %+v, want %s", got, imported.Digest)
	}
	world.ServeNow(t, v1alpha1.ServingOpen)
	client := world.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).Namespace("t")
	// What the API writes is stored in the same form.
	born := env.Gadget("t", "born-here", map[string]any{"note": "<ä> & \u2028 \b", "size": int64(5)})
	if _, err := client.Create(t.Context(), born, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"note":"changed"},"metadata":{"labels":{"z":"1","a":"2"}}}`)
	if _, err := client.Patch(t.Context(), "g0007", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), "g0008", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got := world.Digest(t, "gadgets")
	for name, options := range map[string]metav1.ListOptions{"etcd": {}, "the cache": {ResourceVersion: "0"}, "pages": {Limit: 5000}} {
		if want := listDigest(t, world, options); got.Digest != want || got.Objects != 1201 {
			t.Errorf("a list from %s has digest %s, want that of what is stored: %+v", name, want, got)
		}
	}
	if got.Digest == imported.Digest {
		t.Error("the digest did not change")
	}
}

func TestDrop(t *testing.T) {
	world := adopted.Start(t)
	planet := env.Object("Planet", "", "p", nil)
	planet.SetUID("u")
	drop := func(query string) v1alpha1.ImportResult {
		var result v1alpha1.ImportResult
		world.Subresource(t, adopted.Controller, http.MethodDelete, "import"+query, nil).Decode(t, &result)
		return result
	}
	fill := func() {
		world.Import(t, "gadgets", append(gadgets(300), everything(t)["gadgets"])...)
		world.Import(t, "planets", planet)
	}
	fill()
	if got := drop("?resource=gadgets").Deleted; got != 301 {
		t.Errorf("one resource: %d were deleted, want 301", got)
	}
	if got := world.Digest(t, "planets").Objects; got != 1 {
		t.Errorf("the other resource has %d objects, want 1", got)
	}
	fill()
	if got := drop("").Deleted; got != 302 {
		t.Errorf("all resources: %d were deleted, want 302", got)
	}
	if got := drop("").Deleted; got != 0 {
		t.Errorf("a second time: %d were deleted, want 0", got)
	}
	fill()
	world.ServeNow(t, v1alpha1.ServingReleased)
	if got := drop("").Deleted; got != 302 {
		t.Errorf("of a released group: %d were deleted, want 302", got)
	}
}
