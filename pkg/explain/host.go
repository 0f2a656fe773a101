// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// Host is the cluster, as far as anyone may know it.
type Host interface {
	// Version is that of kube-apiserver.
	Version(ctx context.Context) (*version.Info, error)
	// Resource describes a resource that can be listed, or returns the error NotFound.
	Resource(ctx context.Context, resource schema.GroupVersionResource) (metav1.APIResource, error)
}

// explainHost explains a list of the cluster from the rules of its version.
func explainHost(ctx context.Context, host Host, request *Request, analyze bool) (*kubeannex.ListReviewStatus, error) {
	resource := request.Resource()
	described, err := host.Resource(ctx, resource)
	if err != nil {
		return nil, statusOf(err)
	}
	if analyze {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"%s are kept by the cluster, where annex has no right to list them: to measure it, run kubectl get --raw '%s' yourself", resource.GroupResource(), request.URI))
	}
	info, err := host.Version(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	minor, ok := minorOf(info)
	if !ok {
		minor = newestHost
	}
	kind := &hostKind{rules: rulesOf(minor), builtIn: isBuiltIn(resource.Group)}
	options, err := checkOptions(request, kind, described.Namespaced)
	if err != nil {
		return nil, err
	}
	reading := kind.rules.decide(resource.GroupResource(), options, isSingle(request, options, described.Namespaced))
	status := &kubeannex.ListReviewStatus{Path: request.URI, Server: kubeannex.ListServerHost, ServerVersion: versionOf(info)}
	describe(status, reading)
	status.Explanation = kind.rules.explanation(reading.Rule, options)
	s := situation{request: request, options: options, reading: reading, definition: Definition{Namespaced: described.Namespaced}, host: kind}
	status.Advice = advise(s)
	if !ok || minor < oldestHost || minor > newestHost {
		status.Unknown = append(status.Unknown, fmt.Sprintf("The rules of this version: annex knows those of 1.%d to 1.%d and has taken the nearest.", oldestHost, newestHost))
	}
	status.Unknown = append(status.Unknown, unknownOfHost(s)...)
	return status, nil
}

// isSingle reports whether a list is read by the key of one object (k8s.io/apiserver pkg/registry/generic/registry/store.go,
// ListPredicate). A namespace may be given by a field.
func isSingle(request *Request, options metainternalversion.ListOptions, namespaced bool) bool {
	if options.Continue != "" {
		return false
	}
	name, named := fieldsOf(options).RequiresExactMatch(fieldName)
	if !named || len(content.IsPathSegmentName(name)) != 0 {
		return false
	}
	_, within := fieldsOf(options).RequiresExactMatch(fieldNamespace)
	return !namespaced || within || request.Info.Namespace != ""
}

// statusOf lets nothing but an API status out: a cluster that does not answer is one, too.
func statusOf(err error) error {
	if status, ok := err.(apierrors.APIStatus); ok {
		return &apierrors.StatusError{ErrStatus: status.Status()}
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("asking the cluster: %v", err))
}

// checkOptions refuses what every release refuses, with the words of the newest
// (k8s.io/apiserver pkg/endpoints/handlers/get.go, listOpts; pkg/storage, ValidateListOptions).
func checkOptions(request *Request, kind *hostKind, namespaced bool) (metainternalversion.ListOptions, error) {
	options, err := request.decode()
	if err != nil {
		return options, apierrors.NewBadRequest(err.Error())
	}
	if kind.rules.watchList == watchListUnknown {
		options.SendInitialEvents = nil
	}
	if errs := metainternalversionvalidation.ValidateListOptions(&options, true); len(errs) != 0 {
		return options, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if err := kind.checkFields(options, namespaced); err != nil {
		return options, err
	}
	if options.Watch {
		return options, nil
	}
	// A token names keys below the prefix of its resource, of which "/" is a prefix.
	_, _, err = storage.ValidateListOptions("/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, Recursive: true,
		Predicate: storage.SelectionPredicate{Limit: options.Limit, Continue: options.Continue},
	})
	if err != nil {
		return options, statusOf(err)
	}
	return options, nil
}

// checkFields refuses what a release does not select objects of a definition by, in the
// words of all releases (k8s.io/apiextensions-apiserver pkg/apiserver/conversion, ConvertFieldLabel).
// By what built-in kinds are selected, and which fields a definition names, is not known.
func (k *hostKind) checkFields(options metainternalversion.ListOptions, namespaced bool) error {
	if k.builtIn || options.FieldSelector == nil {
		return nil
	}
	_, err := options.FieldSelector.Transform(func(field, value string) (newField, newValue string, err error) {
		switch {
		case field == fieldName, field == fieldNamespace && namespaced:
		case field == fieldNamespace, !k.rules.selectableFields:
			return "", "", fmt.Errorf("field label not supported: %s", field)
		}
		return field, value, nil
	})
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// unknownOfHost says what cannot be known of a list of the cluster.
func unknownOfHost(s situation) []string {
	unknown := []string{
		"How many objects there are, how big they are and what the list costs in fairness seats: annex has no right to read them.",
		"Flags of that server: the rules are those of its default feature gates and --watch-cache flags.",
	}
	rules, rule := s.host.rules, s.reading.Rule
	if !s.host.builtIn {
		unknown = append(unknown, "Whether another API server keeps this group: kube-apiserver passes the list on then, and these are not its rules.")
	}
	if rule == annexed.RuleLatest {
		unknown = append(unknown, "The version of its etcd: before 3.4.31, and of 3.5 before 3.5.13, etcd answers instead of the cache.")
	}
	if s.reading.Source == "" && rule != annexed.RuleWatch {
		unknown = append(unknown, "Whether the cache still has a snapshot of that version: if not, etcd answers.")
	}
	if rule == annexed.RuleAny {
		unknown = append(unknown, "Whether the cache is filled: it is not in the first moments after a start.")
	}
	if s.options.Watch && rules.watchList == watchListOff {
		unknown = append(unknown, "Whether the feature gate WatchList is on.")
	}
	switch field := customField(s.request.Resource().GroupResource(), s.options); {
	case field == "":
	case s.host.builtIn:
		unknown = append(unknown, fmt.Sprintf("Whether %s can be selected by %s: if not, the server refuses the list.", s.request.Info.Resource, field))
	default:
		unknown = append(unknown, fmt.Sprintf("Whether the definition names %s among its selectableFields: if not, the server refuses the list.", field))
	}
	return unknown
}

// customField is a field of the selector of which it is not known whether objects can be selected by it.
func customField(resource schema.GroupResource, options metainternalversion.ListOptions) string {
	for _, requirement := range fieldsOf(options).Requirements() {
		field := requirement.Field
		if field != fieldName && field != fieldNamespace && (field != fieldNodeName || !isPods(resource)) {
			return field
		}
	}
	return ""
}
