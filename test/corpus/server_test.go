// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// definitionsPath is where a server keeps the definitions.
const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// userAgent is the same at both servers: the name of a manager in managedFields begins with it.
const userAgent = "corpus"

// server is annex or the host, past each other.
type server struct {
	name    string
	client  rest.Interface
	dynamic dynamic.Interface
	config  *rest.Config
	process *env.Process
	kubectl *env.Kubectl
}

// newServer makes a client without limits. It waits and asks again when a server
// answers Retry-After, as the storage of a definition that changed does.
func newServer(name string, config *rest.Config, process *env.Process, kubectl *env.Kubectl) (*server, error) {
	config = dynamic.ConfigFor(config)
	config.UserAgent = userAgent
	config.WarningHandler = rest.NoWarnings{}
	watcher, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", name, err)
	}
	config.GroupVersion = &schema.GroupVersion{}
	config.APIPath = "/"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", name, err)
	}
	return &server{name: name, client: client, dynamic: watcher, config: config, process: process, kubectl: kubectl}, nil
}

// answer is what has to be the same at both servers.
type answer struct {
	Code   int
	Reason metav1.StatusReason
	// Message is left out when it enumerates several causes: upstream walks maps,
	// so their order is not the same in two answers of one server either.
	Message string
	// Causes and Warnings are sorted.
	Causes   []string
	Warnings []string
	// Object is the object, or the list, without what is a server's own.
	Object map[string]any
}

// ok tells whether the request succeeded.
func (a answer) ok() bool { return a.Code >= 200 && a.Code < 300 }

// raw is a whole answer.
type raw struct {
	answer

	// resourceVersion of the object.
	resourceVersion string
	// object is the whole object.
	object *unstructured.Unstructured
}

// do sends one request. An error means that there was no answer from the server.
func (s *server) do(ctx context.Context, verb, path string, body []byte) (raw, error) {
	request := s.client.Verb(verb).AbsPath(path)
	if body != nil {
		request.Body(body)
	}
	return s.send(ctx, request, verb+" "+path)
}

func (s *server) patch(ctx context.Context, kind types.PatchType, path string, body []byte, query ...string) (raw, error) {
	request := s.client.Patch(kind).AbsPath(path).Body(body)
	for i := 0; i+1 < len(query); i += 2 {
		request.Param(query[i], query[i+1])
	}
	return s.send(ctx, request, "PATCH "+path)
}

func (s *server) send(ctx context.Context, request *rest.Request, name string) (raw, error) {
	result := request.Do(ctx)
	var got raw
	result.StatusCode(&got.Code)
	for _, warning := range result.Warnings() {
		got.Warnings = append(got.Warnings, warning.Text)
	}
	slices.Sort(got.Warnings)
	if err := result.Error(); err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return raw{}, fmt.Errorf("%s: %s: %w", s.name, name, err)
		}
		got.answer = got.refused(status.Status())
		return got, nil
	}
	data, err := result.Raw()
	if err != nil {
		return raw{}, fmt.Errorf("%s: %s: %w", s.name, name, err)
	}
	got.object = &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &got.object.Object); err != nil {
		return raw{}, fmt.Errorf("%s: decoding the answer of %s: %w", s.name, name, err)
	}
	got.resourceVersion = got.object.GetResourceVersion()
	got.Object = compared(got.object.DeepCopy().Object)
	return got, nil
}

// refused adds what a refusal says. A revision of etcd in a message is replaced.
func (a answer) refused(status metav1.Status) answer {
	revision := regexp.MustCompile(`revision=\d+`)
	a.Code, a.Reason = int(status.Code), status.Reason
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			message := revision.ReplaceAllString(cause.Message, "revision=N")
			a.Causes = append(a.Causes, fmt.Sprintf("%s: %s: %s", cause.Field, cause.Type, message))
		}
	}
	slices.Sort(a.Causes)
	if len(a.Causes) < 2 {
		a.Message = revision.ReplaceAllString(status.Message, "revision=N")
	}
	return a
}

func (s *server) get(ctx context.Context, path string) (raw, error) {
	return s.do(ctx, http.MethodGet, path, nil)
}

// post creates an object. Unknown and double fields become warnings, as by
// default, and the object is stored without them.
func (s *server) post(ctx context.Context, path string, object *unstructured.Unstructured) (raw, error) {
	body, err := object.MarshalJSON()
	if err != nil {
		return raw{}, err
	}
	return s.do(ctx, http.MethodPost, path, body)
}

// replace updates an object at path to what is given. The object must exist.
func (s *server) replace(ctx context.Context, path string, object *unstructured.Unstructured) (raw, error) {
	current, err := s.get(ctx, path)
	if err != nil || !current.ok() {
		return current, err
	}
	object = object.DeepCopy()
	object.SetResourceVersion(current.resourceVersion)
	body, err := object.MarshalJSON()
	if err != nil {
		return raw{}, err
	}
	return s.do(ctx, http.MethodPut, path, body)
}

// compared removes from an object, or from the items of a list, what every
// server makes for itself: UID, resource version and times, the order of
// managedFields, which follows the times, and the name under which the server's
// own controllers write the status of a definition, which is that of its program.
func compared(object map[string]any) map[string]any {
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				compared(item)
			}
		}
	}
	for _, path := range [][]string{{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"}} {
		unstructured.RemoveNestedField(object, path...)
	}
	if _, marked, _ := unstructured.NestedString(object, "metadata", "deletionTimestamp"); marked {
		_ = unstructured.SetNestedField(object, "set", "metadata", "deletionTimestamp")
	}
	isDefinition := object["kind"] == "CustomResourceDefinition"
	owners := mapsAt(object, "metadata", "managedFields")
	for _, owner := range owners {
		delete(owner, "time")
		if isDefinition && owner["subresource"] == "status" && owner["manager"] != userAgent {
			owner["manager"] = "server"
		}
	}
	sortItems(object, "metadata", "managedFields")
	if isDefinition {
		for _, condition := range mapsAt(object, "status", "conditions") {
			delete(condition, "lastTransitionTime")
		}
		sortItems(object, "status", "conditions")
	}
	return object
}

// mapsAt returns the maps in the list at path, shared with the object.
func mapsAt(object map[string]any, path ...string) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	items, _ := list.([]any)
	var found []map[string]any
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			found = append(found, item)
		}
	}
	return found
}

// sortItems sorts the list at path by the text of its items; fmt sorts the keys of maps.
func sortItems(object map[string]any, path ...string) {
	list, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	items, _ := list.([]any)
	slices.SortFunc(items, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// collectionPath is where the objects of a resource are created.
func collectionPath(resource schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + url.PathEscape(resource.Group) + "/" + url.PathEscape(resource.Version)
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + url.PathEscape(resource.Resource)
}
