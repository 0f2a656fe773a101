// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// kind is a resource that a plug-in lives on.
type kind struct {
	plugin string
	// object is of the type that the plug-in reads, newList makes an empty list of it.
	object  runtime.Object
	newList func() runtime.Object
	// versions are tried in this order, the first is the one that the plug-in reads.
	versions []version
}

// version is one way to read a kind.
type version struct {
	resource schema.GroupVersionResource
	list     func(context.Context, kubernetes.Interface, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, kubernetes.Interface, metav1.ListOptions) (watch.Interface, error)
}

// kinds are all resources that a supported cluster may lack.
func kinds() []kind {
	return slices.Concat(mutatingPolicies(), validatingPolicies(), flowControl())
}

// mutatingPolicies were beta, of the same shape, and off by default before 1.36. An
// operator of an older cluster who has switched them on wants them to be obeyed.
func mutatingPolicies() []kind {
	return []kind{
		{
			plugin:  MutatingAdmissionPolicy,
			object:  &admissionregistrationv1.MutatingAdmissionPolicy{},
			newList: func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyList{} },
			versions: []version{
				read(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"),
					func(c kubernetes.Interface) reader[*admissionregistrationv1.MutatingAdmissionPolicyList] {
						return c.AdmissionregistrationV1().MutatingAdmissionPolicies()
					}),
				converted(read(admissionregistrationv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"),
					func(c kubernetes.Interface) reader[*admissionregistrationv1beta1.MutatingAdmissionPolicyList] {
						return c.AdmissionregistrationV1beta1().MutatingAdmissionPolicies()
					}),
					func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyList{} },
					func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicy{} }),
			},
		},
		{
			plugin:  MutatingAdmissionPolicy,
			object:  &admissionregistrationv1.MutatingAdmissionPolicyBinding{},
			newList: func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBindingList{} },
			versions: []version{
				read(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"),
					func(c kubernetes.Interface) reader[*admissionregistrationv1.MutatingAdmissionPolicyBindingList] {
						return c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
					}),
				converted(read(admissionregistrationv1beta1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"),
					func(c kubernetes.Interface) reader[*admissionregistrationv1beta1.MutatingAdmissionPolicyBindingList] {
						return c.AdmissionregistrationV1beta1().MutatingAdmissionPolicyBindings()
					}),
					func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBindingList{} },
					func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBinding{} }),
			},
		},
	}
}

func validatingPolicies() []kind {
	return []kind{
		{
			plugin:  ValidatingAdmissionPolicy,
			object:  &admissionregistrationv1.ValidatingAdmissionPolicy{},
			newList: func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyList{} },
			versions: []version{read(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
				func(c kubernetes.Interface) reader[*admissionregistrationv1.ValidatingAdmissionPolicyList] {
					return c.AdmissionregistrationV1().ValidatingAdmissionPolicies()
				})},
		},
		{
			plugin:  ValidatingAdmissionPolicy,
			object:  &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
			newList: func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{} },
			versions: []version{read(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"),
				func(c kubernetes.Interface) reader[*admissionregistrationv1.ValidatingAdmissionPolicyBindingList] {
					return c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
				})},
		},
	}
}

func flowControl() []kind {
	return []kind{
		{
			plugin:  PriorityAndFairness,
			object:  &flowcontrolv1.FlowSchema{},
			newList: func() runtime.Object { return &flowcontrolv1.FlowSchemaList{} },
			versions: []version{read(flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"),
				func(c kubernetes.Interface) reader[*flowcontrolv1.FlowSchemaList] {
					return c.FlowcontrolV1().FlowSchemas()
				})},
		},
		{
			plugin:  PriorityAndFairness,
			object:  &flowcontrolv1.PriorityLevelConfiguration{},
			newList: func() runtime.Object { return &flowcontrolv1.PriorityLevelConfigurationList{} },
			versions: []version{read(flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations"),
				func(c kubernetes.Interface) reader[*flowcontrolv1.PriorityLevelConfigurationList] {
					return c.FlowcontrolV1().PriorityLevelConfigurations()
				})},
		},
	}
}

// reader is what every typed client of a resource has.
type reader[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// read reads a resource by its typed client.
func read[L runtime.Object](resource schema.GroupVersionResource, client func(kubernetes.Interface) reader[L]) version {
	return version{
		resource: resource,
		list: func(ctx context.Context, c kubernetes.Interface, options metav1.ListOptions) (runtime.Object, error) {
			return client(c).List(ctx, options)
		},
		watch: func(ctx context.Context, c kubernetes.Interface, options metav1.ListOptions) (watch.Interface, error) {
			return client(c).Watch(ctx, options)
		},
	}
}

// converted turns what a version reads into the types of another that is of the same shape.
func converted(from version, newList, newObject func() runtime.Object) version {
	return version{
		resource: from.resource,
		list: func(ctx context.Context, c kubernetes.Interface, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.list(ctx, c, options)
			if err != nil {
				return nil, err
			}
			return convert(list, newList())
		},
		watch: func(ctx context.Context, c kubernetes.Interface, options metav1.ListOptions) (watch.Interface, error) {
			events, err := from.watch(ctx, c, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				return convertEvent(event, newObject()), true
			}), nil
		},
	}
}

func convertEvent(event watch.Event, into runtime.Object) watch.Event {
	if event.Type == watch.Error {
		return event
	}
	object, err := convert(event.Object, into)
	if err != nil {
		return watch.Event{Type: watch.Error, Object: &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error(),
		}}
	}
	return watch.Event{Type: event.Type, Object: object}
}

// convert copies by way of JSON.
func convert(from, into runtime.Object) (runtime.Object, error) {
	data, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", from, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("decoding %T as %T: %w", from, into, err)
	}
	return into, nil
}
