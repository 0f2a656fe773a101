// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/reads"
)

// gadgetsOf is a definition of gadgets with some versions, which all have a status.
func gadgetsOf(uid types.UID, generation int64, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.lab.annex.test", UID: uid, Generation: generation},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "lab.annex.test"},
	}
	for _, version := range versions {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		})
	}
	return definition
}

// followed is a tracker that follows definitions.
type followed struct {
	client  *apiextensionsfake.Clientset
	served  *servedResources
	tracker *reads.Tracker
	store   cache.Store
}

func startFollowing(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) followed {
	t.Helper()
	f := followed{client: apiextensionsfake.NewClientset(definition), served: &servedResources{}, tracker: reads.NewTracker(10)}
	factory := apiextensionsinformers.NewSharedInformerFactory(f.client, 0)
	informer := factory.Apiextensions().V1().CustomResourceDefinitions()
	if err := f.served.follow(informer, f.tracker); err != nil {
		t.Fatal(err)
	}
	f.store = informer.Informer().GetStore()
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		t.Fatal("the definitions do not come")
	}
	return f
}

// read gets an object of a version of gadgets.
func (f followed) read(ctx context.Context, version, subresource string) {
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "alice"})
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: "lab.annex.test", APIVersion: version, Resource: "gadgets", Subresource: subresource,
	})
	f.tracker.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), f.served.has, anyIndex).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
}

// anyIndex is there.
func anyIndex(schema.GroupResource, string) bool { return true }

// rows are what the tracker has rows of, sorted.
func (f followed) rows() []string {
	rows := []string{}
	for _, item := range f.tracker.Profiles().Items {
		rows = append(rows, item.Profile.Version+" "+item.Profile.Resource)
	}
	slices.Sort(rows)
	return rows
}

// TestWhatIsNotDeclaredIsForgotten changes a definition whose resources were read.
func TestWhatIsNotDeclaredIsForgotten(t *testing.T) {
	withoutStatus := gadgetsOf("a", 2, "v1", "v1beta1")
	withoutStatus.Spec.Versions[0].Subresources = nil
	notServed := gadgetsOf("a", 2, "v1", "v1beta1")
	notServed.Spec.Versions[1].Served = false
	for name, tc := range map[string]struct {
		// after is nil for a deletion.
		after *apiextensionsv1.CustomResourceDefinition
		want  []string
	}{
		"a version is removed":     {gadgetsOf("a", 2, "v1"), []string{"v1 gadgets", "v1 gadgets/status"}},
		"a subresource is removed": {withoutStatus, []string{"v1 gadgets", "v1beta1 gadgets", "v1beta1 gadgets/status"}},
		"a version is added":       {gadgetsOf("a", 2, "v2", "v1beta1", "v1"), []string{"v1 gadgets", "v1 gadgets/status", "v1beta1 gadgets", "v1beta1 gadgets/status"}},
		"a version is not served":  {notServed, []string{"v1 gadgets", "v1 gadgets/status", "v1beta1 gadgets", "v1beta1 gadgets/status"}},
		"it is another one":        {gadgetsOf("b", 1, "v1beta1"), []string{"v1beta1 gadgets", "v1beta1 gadgets/status"}},
		"it is deleted":            {nil, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFollowing(t, gadgetsOf("a", 1, "v1", "v1beta1"))
			for _, version := range []string{"v1", "v1beta1"} {
				f.read(t.Context(), version, "")
				f.read(t.Context(), version, "status")
			}
			if rows := f.rows(); len(rows) != 4 {
				t.Fatalf("got rows %v", rows)
			}
			f.change(t, tc.after)
			if diff := cmp.Diff(tc.want, f.await(t, tc.want)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

// change updates or deletes the definition.
func (f followed) change(t *testing.T, after *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	definitions := f.client.ApiextensionsV1().CustomResourceDefinitions()
	var err error
	if after != nil {
		_, err = definitions.Update(t.Context(), after, metav1.UpdateOptions{})
	} else {
		err = definitions.Delete(t.Context(), "gadgets.lab.annex.test", metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// await gives the informer time to get there, and returns the rows at last.
func (f followed) await(t *testing.T, want []string) []string {
	t.Helper()
	_ = wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return slices.Equal(f.rows(), want), nil
	})
	return f.rows()
}

// TestARecreatedDefinitionKeepsItsRows checks that the news of a deletion which come
// late take nothing away from a definition that was created meanwhile.
func TestARecreatedDefinitionKeepsItsRows(t *testing.T) {
	f := startFollowing(t, gadgetsOf("new", 1, "v1"))
	f.read(t.Context(), "v1", "")
	old := gadgetsOf("old", 3, "v1", "v1beta1")
	for name, deleted := range map[string]any{
		"seen":     old,
		"not seen": cache.DeletedFinalStateUnknown{Key: old.Name, Obj: old},
	} {
		t.Run(name, func(t *testing.T) {
			f.served.forget(deleted, f.tracker)
			if diff := cmp.Diff([]string{"v1 gadgets"}, f.rows()); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
	if err := f.store.Delete(old); err != nil {
		t.Fatal(err)
	}
	f.served.forget(old, f.tracker)
	if rows := f.rows(); len(rows) != 0 {
		t.Errorf("without a definition of the name: got rows %v", rows)
	}
}
