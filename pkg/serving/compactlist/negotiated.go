// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compactlist

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// form is what a client wants a list in.
type form int

const (
	otherForm form = iota
	plainJSON
	metadata
)

var (
	_ runtime.NegotiatedSerializer     = &negotiated{}
	_ negotiation.EndpointRestrictions = &negotiated{}
)

// negotiated knows what custom resources are served in, in the order of upstream, so that
// upstream's negotiation comes to the same (k8s.io/apiextensions-apiserver
// pkg/apiserver/customresource_handler.go, getOrCreateServingInfoFor; k8s.io/apiserver
// pkg/endpoints/handlers/rest.go, RequestScope.AllowsMediaTypeTransform).
type negotiated struct {
	// Serializer encodes nothing here.
	runtime.NegotiatedSerializer
	plain runtime.Serializer
	types []runtime.SerializerInfo
}

func newNegotiated() *negotiated {
	serializer := func(options json.SerializerOptions) runtime.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, options)
	}
	n := &negotiated{plain: serializer(json.SerializerOptions{})}
	n.types = []runtime.SerializerInfo{
		{
			MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
			Serializer: n.plain, PrettySerializer: serializer(json.SerializerOptions{Pretty: true}),
			StreamSerializer: &runtime.StreamSerializerInfo{EncodesAsText: true, Serializer: n.plain, Framer: json.Framer},
		},
		{MediaType: runtime.ContentTypeYAML, MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true},
		{
			MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
			StreamSerializer: &runtime.StreamSerializerInfo{},
		},
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		n.types = append(n.types, runtime.SerializerInfo{
			MediaType: runtime.ContentTypeCBOR, MediaTypeType: "application", MediaTypeSubType: "cbor",
			StreamSerializer: &runtime.StreamSerializerInfo{},
		})
	}
	return n
}

func (n *negotiated) formOf(req *http.Request) form {
	mediaType, info, err := negotiation.NegotiateOutputMediaType(req, n, n)
	switch {
	case err != nil:
		return otherForm
	case mediaType.Convert != nil:
		if mediaType.Convert.Kind == "PartialObjectMetadataList" {
			return metadata
		}
		return otherForm
	case info.Serializer == n.plain:
		return plainJSON
	default:
		return otherForm
	}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (n *negotiated) SupportedMediaTypes() []runtime.SerializerInfo { return n.types }

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (n *negotiated) AllowsMediaTypeTransform(mimeType, mimeSubType string, target *schema.GroupVersionKind) bool {
	text := mimeType == "application" && (mimeSubType == "json" || mimeSubType == "yaml")
	switch {
	case target == nil:
		return mimeSubType != "vnd.kubernetes.protobuf"
	case target.GroupVersion() != metav1.SchemeGroupVersion && target.GroupVersion() != metav1beta1.SchemeGroupVersion:
		return false
	case target.Kind == "Table":
		return text
	default:
		return target.Kind == "PartialObjectMetadata" || target.Kind == "PartialObjectMetadataList"
	}
}

// AllowsServerVersion implements negotiation.EndpointRestrictions.
func (n *negotiated) AllowsServerVersion(version string) bool {
	return version == metav1.SchemeGroupVersion.Version
}

// AllowsStreamSchema implements negotiation.EndpointRestrictions.
func (n *negotiated) AllowsStreamSchema(schema string) bool { return schema == "watch" }
