// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

const labGroup = "lab.annex.test"

// annexStub answers for one AnnexedGroup as annex with one replica does, which
// obeys a mode at once. It has no objects.
type annexStub struct {
	mu sync.Mutex
	// group is nil when it has gone.
	group *kubeannexv1alpha1.AnnexedGroup
	// stored are the statuses that were written, as "phase/serving".
	stored []string
	// dropped is how often annex's data were dropped.
	dropped int
	// disabled are the plug-ins that are off.
	disabled []string
	// databaseBytes and quotaBytes are of its etcd.
	databaseBytes, quotaBytes int64
}

var _ http.Handler = (*annexStub)(nil)

func (s *annexStub) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(request.URL.Path, "/apis/kubeannex.io/v1alpha1/annexedgroups")
	_, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case path == "":
		list := &kubeannexv1alpha1.AnnexedGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "kubeannex.io/v1alpha1", Kind: "AnnexedGroupList"}}
		if s.group != nil {
			list.Items = append(list.Items, *s.group)
		}
		answer(response, http.StatusOK, list)
	case s.group == nil:
		refuse(response, http.StatusNotFound, metav1.StatusReasonNotFound, "it has gone")
	case rest == kubeannexv1alpha1.ReplicaSubresource:
		answer(response, http.StatusOK, s.replica())
	case rest == kubeannexv1alpha1.ImportSubresource && request.Method == http.MethodDelete:
		s.drop(response)
	case request.Method == http.MethodPut:
		s.put(response, request, rest == "status")
	case request.Method == http.MethodGet:
		answer(response, http.StatusOK, s.group)
	default:
		http.Error(response, "the stub does not know "+request.Method+" "+request.URL.Path, http.StatusNotImplemented)
	}
}

func (s *annexStub) replica() *kubeannexv1alpha1.ReplicaStatus {
	known := kubeannexv1alpha1.ReplicaResource{DefinitionGeneration: 100, Established: true, Ready: true}
	status := &kubeannexv1alpha1.ReplicaStatus{
		Serving: s.group.Status.Serving, Revision: 1 << 50, DisabledPlugins: s.disabled, DatabaseBytes: s.databaseBytes, QuotaBytes: s.quotaBytes,
	}
	for _, plural := range []string{"morphs", "gadgets"} {
		known.Resource = plural
		status.Resources = append(status.Resources, known)
	}
	return status
}

func (s *annexStub) drop(response http.ResponseWriter) {
	if !slices.Contains([]kubeannexv1alpha1.ServingMode{"", kubeannexv1alpha1.ServingClosed, kubeannexv1alpha1.ServingReleased}, s.group.Status.Serving) {
		refuse(response, http.StatusConflict, metav1.StatusReasonConflict, "the group is served")
		return
	}
	s.dropped++
	answer(response, http.StatusOK, &kubeannexv1alpha1.ImportResult{})
}

// put stores the status, or what is not the status.
func (s *annexStub) put(response http.ResponseWriter, request *http.Request, status bool) {
	written := &kubeannexv1alpha1.AnnexedGroup{}
	if err := json.NewDecoder(request.Body).Decode(written); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	if written.ResourceVersion != s.group.ResourceVersion {
		refuse(response, http.StatusConflict, metav1.StatusReasonConflict, "it was changed")
		return
	}
	fresh := s.group.DeepCopy()
	if status {
		fresh.Status = written.Status
		s.stored = append(s.stored, shortStatus(fresh))
	} else {
		fresh.Finalizers, fresh.Spec = written.Finalizers, written.Spec
	}
	s.store(fresh)
	answer(response, http.StatusOK, fresh)
	if fresh.DeletionTimestamp != nil && len(fresh.Finalizers) == 0 {
		s.group = nil
	}
}

// store gives a group the next resource version.
func (s *annexStub) store(group *kubeannexv1alpha1.AnnexedGroup) {
	group.ResourceVersion += "1"
	s.group = group
}

// change is a write of somebody else.
func (s *annexStub) change(change func(*kubeannexv1alpha1.AnnexedGroup)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.group.DeepCopy()
	change(fresh)
	s.store(fresh)
}

func (s *annexStub) present() *kubeannexv1alpha1.AnnexedGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.group.DeepCopy()
}

func shortStatus(group *kubeannexv1alpha1.AnnexedGroup) string {
	return string(group.Status.Phase) + "/" + string(group.Status.Serving)
}

func answer(response http.ResponseWriter, code int, content any) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(code)
	if err := json.NewEncoder(response).Encode(content); err != nil {
		return
	}
}

func refuse(response http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(response, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	})
}

// waitingClock stands still but for who waits for it.
type waitingClock struct{ *testingclock.FakeClock }

func (c waitingClock) After(d time.Duration) <-chan time.Time {
	fires := c.FakeClock.After(d)
	c.Step(d)
	return fires
}

// lab is a controller with a cluster and an annex to test steps with. All
// definitions are of the group lab.annex.test.
type lab struct {
	*Reconciler
	annex    *annexStub
	kube     *fake.Clientset
	services *aggregatorfake.Clientset
	// definitions are those of the cluster, mirrors those of annex.
	definitions, mirrors *apiextensionsfake.Clientset
	// copies are the metadata that the cluster has of objects.
	copies *metadatafake.FakeMetadataClient
	clock  waitingClock
	events *events.FakeRecorder
}

// setup is how a lab begins.
type setup struct {
	status   kubeannexv1alpha1.AnnexedGroupStatus
	spec     kubeannexv1alpha1.AnnexedGroupSpec
	deleting bool
	services []*apiregistrationv1.APIService
	// definitions and mirrors are nil for those of the morphs.
	definitions, mirrors []*apiextensionsv1.CustomResourceDefinition
}

func startLab(t *testing.T, begin setup) *lab {
	t.Helper()
	group := &kubeannexv1alpha1.AnnexedGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubeannex.io/v1alpha1", Kind: "AnnexedGroup"},
		ObjectMeta: metav1.ObjectMeta{
			Name: labGroup, UID: "lab", ResourceVersion: "1", Generation: 1, Finalizers: []string{kubeannexv1alpha1.ReleaseFinalizer},
		},
		Spec: begin.spec, Status: begin.status,
	}
	if begin.deleting {
		group.DeletionTimestamp = ptr.To(metav1.Now())
	}
	if begin.definitions == nil {
		begin.definitions = []*apiextensionsv1.CustomResourceDefinition{definition(t)}
		if begin.status.Serving != "" && begin.status.Serving != kubeannexv1alpha1.ServingClosed {
			begin.definitions[0].Finalizers = []string{kubeannexv1alpha1.DefinitionFinalizer} // as an adoption leaves it
		}
	}
	if begin.mirrors == nil {
		begin.mirrors = []*apiextensionsv1.CustomResourceDefinition{mirrorIn(t, definition(t))}
	}
	l := &lab{
		annex: &annexStub{group: group}, kube: fake.NewClientset(), services: aggregatorfake.NewClientset(objectsOf(begin.services)...),
		definitions: apiextensionsfake.NewClientset(objectsOf(begin.definitions)...), mirrors: apiextensionsfake.NewClientset(objectsOf(begin.mirrors)...),
		copies: noMetadata(t), clock: waitingClock{testingclock.NewFakeClock(time.Now())}, events: events.NewFakeRecorder(100),
	}
	listener := httptest.NewServer(l.annex)
	t.Cleanup(listener.Close)
	annex, err := cluster.NewServer("annex", &rest.Config{Host: listener.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	annex.Definitions, annex.Dynamic, annex.Metadata = l.mirrors, noObjects(), noMetadata(t)
	l.Reconciler = &Reconciler{Clock: l.clock, Recorder: l.events, HostRequestTimeout: 3 * time.Second, Connections: cluster.Connections{
		Host: &cluster.Server{
			Name: "the cluster", Kube: l.kube, Definitions: l.definitions, APIServices: l.services, Dynamic: noObjects(), Metadata: l.copies,
		},
		HostEndpoints:  func(context.Context) ([]*cluster.Server, error) { return nil, nil },
		Annex:          annex,
		AnnexEndpoints: func(context.Context) ([]*cluster.Server, error) { return []*cluster.Server{annex}, nil },
		AnnexService:   apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)},
		AnnexCA:        func() []byte { return []byte("authority") },
		Username:       "annex-controller",
		Namespace:      "annex-system",
	}}
	return l
}

func objectsOf[T runtime.Object](items []T) []runtime.Object {
	objects := make([]runtime.Object, 0, len(items))
	for _, item := range items {
		objects = append(objects, item)
	}
	return objects
}

// noObjects is a server that has no object in any version.
func noObjects() dynamic.Interface {
	kinds := map[schema.GroupVersionResource]string{}
	for _, version := range []string{"v1", "v2", kubeannexv1alpha1.PrivateVersion} {
		kinds[schema.GroupVersionResource{Group: labGroup, Version: version, Resource: "morphs"}] = "MorphList"
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
}

func noMetadata(t *testing.T) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return metadatafake.NewSimpleMetadataClient(scheme)
}

// mirrorIn is what annex has of a definition of the cluster.
func mirrorIn(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition, marks ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	mirror, err := mirrorOf(definition)
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range marks {
		mirror.Annotations[mark] = "true"
	}
	return mirror
}

// gadgetDefinition is one more definition of the group, with version v3.
func gadgetDefinition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return definition(t, withoutConversion, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Name, d.UID, d.Spec.Names.Plural, d.Spec.Names.Kind = "gadgets."+labGroup, "2", "gadgets", "Gadget"
		d.Spec.Versions = d.Spec.Versions[:1]
		d.Spec.Versions[0].Name = "v3"
	})
}

// version makes an APIService that of another version.
func version(name string) func(*apiregistrationv1.APIService) {
	return func(s *apiregistrationv1.APIService) { s.Name, s.Spec.Version = name+"."+labGroup, name }
}

// routes are APIServices of v1 and v2 that name annex.
func routes() []*apiregistrationv1.APIService {
	return []*apiregistrationv1.APIService{apiServiceOf(annexService), apiServiceOf(annexService, version("v2"))}
}

// localRoutes are those that kube-apiserver makes.
func localRoutes() []*apiregistrationv1.APIService {
	return []*apiregistrationv1.APIService{apiServiceOf(), apiServiceOf(version("v2"))}
}

// run reconciles once and returns the group after that, nil when it has gone. A
// refusal that waits for the user is no error of Reconcile; it is returned as one.
func (l *lab) run(t *testing.T) (*kubeannexv1alpha1.AnnexedGroup, reconcile.Result, error) {
	t.Helper()
	result, err := l.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: labGroup}})
	group := l.annex.present()
	if progressing := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionProgressing); err == nil && progressing != nil {
		for _, cause := range []error{errRouted, errRestored, errOrphans} {
			if result.RequeueAfter == refusalPause && strings.Contains(progressing.Message, cause.Error()) {
				err = fmt.Errorf("%w: %s", cause, progressing.Message)
			}
		}
	}
	return group, result, err
}

// routed tells where the requests of each version go.
func (l *lab) routed(t *testing.T) map[string]string {
	t.Helper()
	list, err := l.services.ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, service := range list.Items {
		found[service.Spec.Version] = "cluster"
		if reference := service.Spec.Service; reference != nil {
			found[service.Spec.Version] = reference.Name
		}
	}
	return found
}

// mirrored are the names of annex's definitions.
func (l *lab) mirrored(t *testing.T) []string {
	t.Helper()
	definitions, err := listDefinitions(t.Context(), l.Connections.Annex, labGroup)
	if err != nil {
		t.Fatal(err)
	}
	return namesOf(definitions)
}

// opened says that the private route is open.
func (l *lab) opened(t *testing.T) bool {
	t.Helper()
	definitions, err := listDefinitions(t.Context(), l.Connections.Host, labGroup)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(definitions, func(d apiextensionsv1.CustomResourceDefinition) bool { return hasPrivateVersion(&d) })
}

// happened are the events since the last call.
func (l *lab) happened() string {
	var lines []string
	for {
		select {
		case line := <-l.events.Events:
			lines = append(lines, line)
		default:
			return strings.Join(lines, "\n")
		}
	}
}

// condition shows a condition as "status reason", "" when it is absent.
func condition(group *kubeannexv1alpha1.AnnexedGroup, kind string) string {
	for _, c := range group.Status.Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	return ""
}
