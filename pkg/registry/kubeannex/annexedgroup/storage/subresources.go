// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// resourceParameter names the resource in the query of import and digest.
const resourceParameter = "resource"

// Data is what the subresources of an AnnexedGroup do. Errors are API status errors.
type Data interface {
	// Import writes a stream of watch events to the storage of a resource.
	Import(ctx context.Context, group *kubeannex.AnnexedGroup, resource string, stream io.Reader) (kubeannexv1alpha1.ImportResult, error)
	// Drop deletes all stored objects of a resource, or of all resources of the group if it is empty.
	Drop(ctx context.Context, group *kubeannex.AnnexedGroup, resource string) (kubeannexv1alpha1.ImportResult, error)
	// Digest computes the digest of the stored objects of a resource.
	Digest(ctx context.Context, group *kubeannex.AnnexedGroup, resource string) (kubeannexv1alpha1.ResourceDigest, error)
	// Replica tells what this process knows of the group.
	Replica(ctx context.Context, group *kubeannex.AnnexedGroup) (kubeannexv1alpha1.ReplicaStatus, error)
}

// Subresources are the endpoints below an AnnexedGroup that are there for the controller.
type Subresources struct {
	// Import serves "annexedgroups/import".
	Import *SubresourceREST
	// Digest serves "annexedgroups/digest".
	Digest *SubresourceREST
	// Replica serves "annexedgroups/replica".
	Replica *SubresourceREST
}

// NewSubresources builds the endpoints over the store of the groups. Authorization
// has been done when they are called; on top, only controllerUser may import.
func NewSubresources(groups *REST, data Data, controllerUser string) Subresources {
	importer := importer{data: data, controllerUser: controllerUser}
	return Subresources{
		Import: &SubresourceREST{groups: groups, answers: map[string]answer{
			http.MethodPost:   {importer.post, kubeannexv1alpha1.ImportResult{}},
			http.MethodDelete: {importer.delete, kubeannexv1alpha1.ImportResult{}},
		}},
		Digest: &SubresourceREST{groups: groups, answers: map[string]answer{
			http.MethodGet: {func(group *kubeannex.AnnexedGroup, req *http.Request) (any, error) {
				resource, err := requiredResource(req)
				if err != nil {
					return nil, err
				}
				return data.Digest(req.Context(), group, resource)
			}, kubeannexv1alpha1.ResourceDigest{}},
		}},
		Replica: &SubresourceREST{groups: groups, answers: map[string]answer{
			http.MethodGet: {func(group *kubeannex.AnnexedGroup, req *http.Request) (any, error) {
				return data.Replica(req.Context(), group)
			}, kubeannexv1alpha1.ReplicaStatus{}},
		}},
	}
}

// answer is what one method of a subresource does.
type answer struct {
	do func(group *kubeannex.AnnexedGroup, req *http.Request) (any, error)
	// produces is an example of the result, for OpenAPI.
	produces any
}

// importer takes objects from the controller.
type importer struct {
	data           Data
	controllerUser string
}

func (i importer) post(group *kubeannex.AnnexedGroup, req *http.Request) (any, error) {
	if err := i.authorize(group, req); err != nil {
		return nil, err
	}
	resource, err := requiredResource(req)
	if err != nil {
		return nil, err
	}
	return i.data.Import(req.Context(), group, resource, req.Body)
}

func (i importer) delete(group *kubeannex.AnnexedGroup, req *http.Request) (any, error) {
	if err := i.authorize(group, req); err != nil {
		return nil, err
	}
	return i.data.Drop(req.Context(), group, req.URL.Query().Get(resourceParameter))
}

// authorize refuses everybody but the controller: an import can write anything, past all validation.
func (i importer) authorize(group *kubeannex.AnnexedGroup, req *http.Request) error {
	if requester, ok := genericapirequest.UserFrom(req.Context()); ok && requester.GetName() == i.controllerUser {
		return nil
	}
	return apierrors.NewForbidden(kubeannex.Resource("annexedgroups"), group.Name,
		fmt.Errorf("only %s may import; see --controller-user of annex-apiserver", i.controllerUser))
}

func requiredResource(req *http.Request) (string, error) {
	resource := req.URL.Query().Get(resourceParameter)
	if resource == "" {
		return "", apierrors.NewBadRequest("name the resource by its plural in the parameter resource")
	}
	return resource, nil
}

var (
	_ rest.Storage         = (*SubresourceREST)(nil)
	_ rest.Connecter       = (*SubresourceREST)(nil)
	_ rest.StorageMetadata = (*SubresourceREST)(nil)
)

// SubresourceREST serves one subresource whose requests and results are no API objects.
type SubresourceREST struct {
	groups  *REST
	answers map[string]answer
}

// New returns the kind that discovery shows for the subresource.
func (r *SubresourceREST) New() runtime.Object { return &kubeannex.AnnexedGroup{} }

// Destroy does nothing: REST owns the store.
func (r *SubresourceREST) Destroy() {}

// NewConnectOptions returns nothing: parameters are read from the query.
func (r *SubresourceREST) NewConnectOptions() (options runtime.Object, hasSubpath bool, subpathKey string) {
	return nil, false, ""
}

// ConnectMethods are the methods that are answered.
func (r *SubresourceREST) ConnectMethods() []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if _, ok := r.answers[method]; ok {
			methods = append(methods, method)
		}
	}
	return methods
}

// ProducesMIMETypes is JSON whatever the client accepts.
func (r *SubresourceREST) ProducesMIMETypes(string) []string {
	return []string{runtime.ContentTypeJSON}
}

// ProducesObject is an example of the result.
func (r *SubresourceREST) ProducesObject(verb string) any { return r.answers[verb].produces }

// Connect returns the handler of a request for the group of that name, which must exist.
func (r *SubresourceREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	object, err := r.groups.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	group, ok := object.(*kubeannex.AnnexedGroup)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading AnnexedGroup %s: got a %T", name, object))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		result, err := r.answers[req.Method].do(group, req)
		if err != nil {
			responder.Error(err)
			return
		}
		body, err := json.Marshal(result)
		if err != nil {
			responder.Error(apierrors.NewInternalError(err))
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.Write(append(body, '\n')) //nolint:errcheck // the client is gone
	}), nil
}
