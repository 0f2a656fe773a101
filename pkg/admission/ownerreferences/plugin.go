// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerreferences is the admission plug-in OwnerReferencesPermissionEnforcement
// of kube-apiserver for a server that is not built from it: who makes an object
// depend on another needs rights on both. Verdicts and messages are those of
// k8s.io/kubernetes plugin/pkg/admission/gc, so that users see no difference.
package ownerreferences

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// PluginName is the name of the plug-in in flags and configuration.
const PluginName = "OwnerReferencesPermissionEnforcement"

// Register makes the plug-in known. It takes no configuration.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
	_ initializer.WantsRESTMapper              = &Plugin{}
)

// Plugin refuses owner references that their author has no rights for: on an
// update, the right to delete the dependent; for a reference that blocks the deletion
// of its owner, the right to update the owner's finalizers.
type Plugin struct {
	*admission.Handler

	authorizer authorizer.UnconditionalAuthorizer
	mapper     meta.RESTMapper
}

// New returns a plug-in that still needs an authorizer and a mapper.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetUnconditionalAuthorizer says who decides about rights.
func (p *Plugin) SetUnconditionalAuthorizer(authorizer authorizer.UnconditionalAuthorizer) {
	p.authorizer = authorizer
}

// SetRESTMapper says which resources the kind of an owner stands for.
func (p *Plugin) SetRESTMapper(mapper meta.RESTMapper) { p.mapper = mapper }

// ValidateInitialization reports what was not set.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil {
		return errors.New("missing authorizer")
	}
	if p.mapper == nil {
		return errors.New("missing restMapper")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	after, before, ok := references(attributes)
	if !ok || slices.EqualFunc(before, after, equal) {
		return nil
	}
	if err := p.checkDependent(ctx, attributes); err != nil {
		return err
	}
	return p.checkOwners(ctx, attributes, blocking(before, after))
}

// references are those of the object after and before the request. It returns false
// for what has no metadata.
func references(attributes admission.Attributes) (after, before []metav1.OwnerReference, ok bool) {
	if after, ok = referencesOf(attributes.GetObject()); !ok {
		return nil, nil, false
	}
	if attributes.GetOldObject() == nil {
		return after, nil, true
	}
	before, ok = referencesOf(attributes.GetOldObject())
	return after, before, ok
}

func referencesOf(object runtime.Object) ([]metav1.OwnerReference, bool) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, false
	}
	return accessor.GetOwnerReferences(), true
}

func equal(a, b metav1.OwnerReference) bool { return apiequality.Semantic.DeepEqual(a, b) }

// blocking are the references that did not block the deletion of their owner before.
func blocking(before, after []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[types.UID]bool{}
	for _, reference := range before {
		// Of several references with one UID the last counts.
		blocked[reference.UID] = blocks(reference)
	}
	var added []metav1.OwnerReference
	for _, reference := range after {
		if blocks(reference) && !blocked[reference.UID] {
			added = append(added, reference)
		}
	}
	return added
}

func blocks(reference metav1.OwnerReference) bool {
	return reference.BlockOwnerDeletion != nil && *reference.BlockOwnerDeletion
}

// checkDependent asks for the right to delete the dependent, which a new owner does in
// the end. Who creates an object needs no right to do without it.
func (p *Plugin) checkDependent(ctx context.Context, attributes admission.Attributes) error {
	if attributes.GetOperation() == admission.Create {
		return nil
	}
	resource := attributes.GetResource()
	decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            attributes.GetUserInfo(),
		Verb:            "delete",
		Namespace:       attributes.GetNamespace(),
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     attributes.GetSubresource(),
		Name:            attributes.GetName(),
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return admission.NewForbidden(attributes, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)) //nolint:errorlint // the text of kube-apiserver
}

// checkOwners asks for the right to update the finalizers of owners whose deletion
// will wait for the dependent. Of who may do that everywhere, no owner is looked up:
// discovery may not answer while a cluster starts.
func (p *Plugin) checkOwners(ctx context.Context, attributes admission.Attributes, owners []metav1.OwnerReference) error {
	if len(owners) == 0 {
		return nil
	}
	everywhere := finalizersOf(attributes.GetUserInfo(), schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}, "*")
	if decision, _, _ := p.authorizer.Authorize(ctx, everywhere); decision == authorizer.DecisionAllow {
		return nil
	}
	for _, owner := range owners {
		if err := p.checkOwner(ctx, attributes, owner); err != nil {
			return err
		}
	}
	return nil
}

// checkOwner asks about every resource that the kind of the owner may stand for.
func (p *Plugin) checkOwner(ctx context.Context, attributes admission.Attributes, owner metav1.OwnerReference) error {
	mappings, err := p.mappings(owner)
	if err != nil {
		return admission.NewForbidden(attributes, fmt.Errorf(
			"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %v", owner.APIVersion, owner.Kind, err)) //nolint:errorlint // the text of kube-apiserver
	}
	for _, mapping := range mappings {
		record := finalizersOf(attributes.GetUserInfo(), mapping.Resource, owner.Name)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			// An owner with a namespace is in that of the dependent.
			record.Namespace = attributes.GetNamespace()
		}
		decision, reason, err := p.authorizer.Authorize(ctx, record)
		if decision != authorizer.DecisionAllow {
			return admission.NewForbidden(attributes, fmt.Errorf(
				"cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err)) //nolint:errorlint // the text of kube-apiserver
		}
	}
	return nil
}

func (p *Plugin) mappings(owner metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, err
	}
	return p.mapper.RESTMappings(schema.GroupKind{Group: version.Group, Kind: owner.Kind}, version.Version)
}

func finalizersOf(user user.Info, resource schema.GroupVersionResource, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User:            user,
		Verb:            "update",
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     "finalizers",
		Name:            name,
		ResourceRequest: true,
	}
}
