// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// Request is one LIST, or one watch that begins with the objects that there are.
type Request struct {
	// URI is its path and query.
	URI string
	// Info is how a server understands it. It must not be modified.
	Info *genericapirequest.RequestInfo

	url *url.URL
	// header and remoteAddr are what it is sent with beside what every list has.
	header     http.Header
	remoteAddr string
}

// verbs of Request.Info.
const (
	verbList  = "list"
	verbWatch = "watch"
)

// newRequest reads a specification. Its errors are about the form alone: what a
// server refuses is left to the server.
func newRequest(spec *kubeannex.ListReviewSpec) (*Request, field.ErrorList) {
	path := field.NewPath("spec")
	switch {
	case spec.Path == "" && spec.Resource == nil:
		return nil, field.ErrorList{field.Required(path, "set path or resource")}
	case spec.Path != "" && spec.Resource != nil:
		return nil, field.ErrorList{field.Forbidden(path.Child("resource"), "set either path or resource")}
	case spec.Path != "" && spec.Options != nil:
		return nil, field.ErrorList{field.Forbidden(path.Child("options"), "a path has its options in its query")}
	case spec.Path != "":
		request, err := ParsePath(spec.Path)
		if err != nil {
			return nil, field.ErrorList{field.Invalid(path.Child("path"), spec.Path, err.Error())}
		}
		return request, nil
	}
	if errs := checkResource(spec.Resource, path.Child("resource")); len(errs) != 0 {
		return nil, errs
	}
	uri := joinPath(spec.Resource)
	if query := encodeOptions(spec.Options); query != "" {
		uri += "?" + query
	}
	request, err := ParsePath(uri)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path.Child("resource"), spec.Resource.Resource, err.Error())}
	}
	return request, nil
}

func checkResource(resource *kubeannex.ListedResource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct {
		name, value string
		optional    bool
	}{
		{"group", resource.Group, true},
		{"version", resource.Version, false},
		{"resource", resource.Resource, false},
		{"namespace", resource.Namespace, true},
	} {
		switch {
		case part.value == "" && part.optional:
		case part.value == "":
			errs = append(errs, field.Required(path.Child(part.name), "a list is of one version of one resource"))
		case !isSegment(part.value):
			errs = append(errs, field.Invalid(path.Child(part.name), part.value, "is not one part of a path"))
		}
	}
	return errs
}

func joinPath(resource *kubeannex.ListedResource) string {
	parts := []string{"", "api", resource.Version}
	if resource.Group != "" {
		parts = []string{"", "apis", resource.Group, resource.Version}
	}
	if resource.Namespace != "" {
		parts = append(parts, "namespaces", resource.Namespace)
	}
	return strings.Join(append(parts, resource.Resource), "/")
}

// encodeOptions leaves out what is empty, as clients do.
func encodeOptions(options *kubeannex.ListReviewOptions) string {
	if options == nil {
		return ""
	}
	query := url.Values{}
	for name, value := range map[string]string{
		"labelSelector":        options.LabelSelector,
		"fieldSelector":        options.FieldSelector,
		"continue":             options.Continue,
		"resourceVersion":      options.ResourceVersion,
		"resourceVersionMatch": string(options.ResourceVersionMatch),
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if options.Limit != 0 {
		query.Set("limit", strconv.FormatInt(options.Limit, 10))
	}
	if initial := options.SendInitialEvents; initial != nil {
		query.Set("sendInitialEvents", strconv.FormatBool(*initial))
		if *initial {
			query.Set("watch", "true")
			query.Set("allowWatchBookmarks", "true")
		}
	}
	return query.Encode()
}

// errNotList is what ParsePath says of everything that is not a list.
var errNotList = errors.New("is not the path of a list: that is /api/v1/<resource> or /apis/<group>/<version>/<resource>, " +
	"each with namespaces/<namespace>/ before the resource or without")

var errOnlyWatch = errors.New("is a watch without the objects that there are: remove watch, or add sendInitialEvents=true")

// ParsePath reads the path and query of a list as an HTTP client sends them. Of
// an address with a host only these are taken. Nothing is accepted that a server would
// understand as anything else than the verb list, or watch with sendInitialEvents.
func ParsePath(raw string) (*Request, error) {
	parsed, err := url.ParseRequestURI(raw)
	if err != nil {
		return nil, errNotList
	}
	if parsed.Scheme != "" && parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errNotList
	}
	if parsed.RawPath != "" || !isListPath(parsed.Path) {
		return nil, errNotList
	}
	// What is typed by hand may have what cannot be on the wire.
	uri := parsed.Path
	if query := strings.NewReplacer(" ", "%20", "#", "%23").Replace(parsed.RawQuery); query != "" {
		uri += "?" + query
	}
	request := &Request{URI: uri}
	if request.url, err = url.ParseRequestURI(uri); err != nil {
		return nil, errNotList
	}
	factory := genericapirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	if request.Info, err = factory.NewRequestInfo(request.bare()); err != nil {
		return nil, errNotList
	}
	info := request.Info
	switch {
	case !info.IsResourceRequest || info.Subresource != "" || len(info.Parts) != 1:
		return nil, errNotList
	case info.Verb == verbList:
	case info.Verb != verbWatch:
		return nil, errNotList
	case !slices.Contains([]string{"true", "1"}, request.url.Query().Get("sendInitialEvents")):
		return nil, errOnlyWatch
	}
	return request, nil
}

// isListPath accepts a path by its form. It leaves no room for names of objects, for
// subresources and for the verbs that a path can begin with
// (k8s.io/apiserver pkg/endpoints/request, NewRequestInfo).
func isListPath(path string) bool {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || parts[0] != "" {
		return false
	}
	prefix, rest := parts[1], parts[2:]
	for _, part := range rest {
		if !isSegment(part) {
			return false
		}
	}
	switch prefix {
	case "api":
	case "apis":
		if len(rest) == 0 {
			return false
		}
		rest = rest[1:]
	default:
		return false
	}
	if len(rest) == 4 && rest[1] == "namespaces" {
		rest = []string{rest[0], rest[3]}
	}
	return len(rest) == 2 && rest[1] != "watch" && rest[1] != "proxy"
}

func isSegment(part string) bool {
	if len(part) > maxSegment || strings.Trim(part, ".") == "" {
		return false
	}
	return !strings.ContainsFunc(part, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// maxSegment is the longest name of a group, and of anything else in such a path.
const maxSegment = 253

// http makes the request for a handler. Its context must carry what a server's filters put there.
func (r *Request) http(ctx context.Context) *http.Request { return r.bare().WithContext(ctx) }

func (r *Request) bare() *http.Request {
	header := http.Header{"Accept": {"application/json"}}
	maps.Copy(header, r.header.Clone())
	return &http.Request{
		Method: http.MethodGet, URL: r.url, RequestURI: r.URI,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, RemoteAddr: r.remoteAddr,
		Body: http.NoBody,
	}
}

// Resource names what is listed.
func (r *Request) Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Info.APIGroup, Version: r.Info.APIVersion, Resource: r.Info.Resource}
}

// decode reads the query as upstream's handlers do
// (k8s.io/apiserver pkg/endpoints/handlers/get.go, listOpts).
func (r *Request) decode() (metainternalversion.ListOptions, error) {
	options := metainternalversion.ListOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.url.Query(), metav1.SchemeGroupVersion, &options); err != nil {
		return metainternalversion.ListOptions{}, err
	}
	metainternalversion.SetListOptionsDefaults(&options, true)
	return options, nil
}
