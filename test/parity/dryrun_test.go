// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// etcdKey is the key of an object in the namespace, in kube-apiserver's layout.
func (s *session) etcdKey(resource, name string) string {
	return s.forward("/registry/lab.annex.test/" + resource + "/" + s.namespace + "/" + name)
}

func (s *session) etcdClient() *clientv3.Client {
	s.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.target.etcd.URL}, Context: s.t.Context()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := client.Close(); err != nil {
			s.t.Log(err)
		}
	})
	return client
}

// stored returns the revision of every key of a resource in the namespace.
func (s *session) stored(client *clientv3.Client, resource string) map[string]int64 {
	s.t.Helper()
	answer, err := client.Get(s.t.Context(), s.etcdKey(resource, ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	keys := map[string]int64{}
	for _, pair := range answer.Kvs {
		keys[string(pair.Key)] = pair.ModRevision
	}
	return keys
}

const gadgetYAML = `apiVersion: lab.annex.test/v1
kind: Gadget
metadata:
  name: g
  labels:
    team: a
spec:
  color: blue
  size: 1
`

// TestDryRunWritesNothing reproduces kubernetes/kubernetes 69449 and 71854: a dry run answers like
// the real request and leaves no trace in etcd and in watches.
func TestDryRunWritesNothing(t *testing.T) {
	compare(t, func(s *session) {
		path := s.gadgets() + "/g"
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red","size":1}`)).want(http.StatusCreated)
		s.do("create with finalizer", http.MethodPost, s.gadgets(), `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"held","finalizers":["lab.annex.test/keep"]}}`).want(http.StatusCreated)
		client := s.etcdClient()
		before, since := s.stored(client, "gadgets"), s.now()
		if len(before) != 2 {
			s.t.Fatalf("etcd holds the keys %v, want two", before)
		}

		s.do("dry create", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("new", `{"color":"blue"}`)).want(http.StatusCreated).wantField(nil, "metadata", "resourceVersion")
		s.do("dry create of a taken name", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("g", `{}`)).wantStatus(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		s.do("dry create of an invalid", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("new", `{"size":"big"}`)).wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		s.edit("dry PUT", path+"?dryRun=All", func(object *unstructured.Unstructured) { s.set(object, "green", "spec", "color") }).
			want(http.StatusOK).wantField("green", "spec", "color").wantField(2, "metadata", "generation")
		s.do("dry merge patch", http.MethodPatch, path+"?dryRun=All", `{"spec":{"size":5}}`, "Content-Type", mergePatch).want(http.StatusOK).wantField(5, "spec", "size")
		s.do("dry apply", http.MethodPatch, path+"?dryRun=All&fieldManager=m&force=true", gadgetYAML, "Content-Type", applyPatch).want(http.StatusOK).wantField("blue", "spec", "color")
		s.do("dry apply of a new", http.MethodPatch, s.gadgets()+"/new?dryRun=All&fieldManager=m", gadget("new", `{"size":1}`), "Content-Type", applyPatch).want(http.StatusCreated)
		s.do("dry status", http.MethodPatch, path+"/status?dryRun=All", `{"status":{"size":5}}`, "Content-Type", mergePatch).want(http.StatusOK).wantField(5, "status", "size")
		s.do("dry scale", http.MethodPatch, path+"/scale?dryRun=All", `{"spec":{"replicas":5}}`, "Content-Type", mergePatch).want(http.StatusOK)
		s.do("dry delete", http.MethodDelete, path+"?dryRun=All", "").want(http.StatusOK)
		s.do("dry delete by body", http.MethodDelete, path, `{"dryRun":["All"]}`).want(http.StatusOK)
		s.do("dry delete of one that is held", http.MethodDelete, s.gadgets()+"/held?dryRun=All", "").want(http.StatusOK)
		s.do("dry delete in the foreground", http.MethodDelete, path, `{"dryRun":["All"],"propagationPolicy":"Foreground"}`).want(http.StatusOK)
		collection := s.do("dry delete of all", http.MethodDelete, s.gadgets()+"?dryRun=All", "").want(http.StatusOK)
		if got := len(items(collection)); got != 2 {
			s.t.Errorf("dry delete of all names %d gadgets, want 2", got)
		}

		s.kubectl("kubectl apply, dry", gadgetYAML, "apply", "--dry-run=server", "-f", "-")
		s.kubectl("kubectl apply by the server, dry", gadgetYAML, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		diff := s.kubectl("kubectl diff", gadgetYAML, "diff", "-f", "-")
		if diff.ExitCode != 1 || !strings.Contains(diff.Stdout, "+  color: blue") {
			s.t.Errorf("kubectl diff exits with %d, want 1 and the difference (it needs the program diff: install diffutils)\n%s%s", diff.ExitCode, diff.Stdout, diff.Stderr)
		}
		s.kubectl("kubectl delete, dry", "", "delete", "gadgets.lab.annex.test", "g", "--dry-run=server")

		if diff := cmp.Diff(before, s.stored(client, "gadgets")); diff != "" {
			s.t.Errorf("dry runs changed etcd (-before +after):\n%s", diff)
		}
		s.wantEvents("events of dry runs", since)
	})
}

func items(r *response) []any {
	r.t.Helper()
	list, _, err := unstructured.NestedSlice(r.object().Object, "items")
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// TestDryRunInOpenAPI reproduces kubernetes/kubernetes 69449 and 71854: kubectl sends a dry run
// only where OpenAPI lists the parameter.
func TestDryRunInOpenAPI(t *testing.T) {
	compare(t, func(s *session) {
		document := s.peek(http.MethodGet, "/openapi/v3/apis/lab.annex.test/v1").want(http.StatusOK).object()
		for _, method := range []string{"patch", "put", "delete"} {
			path := fixturePath + "/namespaces/{namespace}/gadgets/{name}"
			parameters, _, err := unstructured.NestedSlice(document.Object, "paths", path, method, "parameters")
			if err != nil {
				s.t.Fatal(err)
			}
			found := slices.ContainsFunc(parameters, func(parameter any) bool {
				fields, ok := parameter.(map[string]any)
				return ok && fields["name"] == "dryRun"
			})
			if !found {
				s.t.Errorf("OpenAPI lists no dryRun for %s", method)
			}
		}
	})
}
