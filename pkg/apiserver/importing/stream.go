// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/kubeannex/annex/pkg/digest"
)

const (
	// MaxObjectBytes is the size of the largest event that an import takes. It is
	// above what any kube-apiserver accepts, so that etcd's own limit decides.
	MaxObjectBytes = 4 << 20
	// MaxRequestBytes is the size of the largest import. It bounds the memory of one.
	MaxRequestBytes = 32 << 20
)

// errRequestTooLarge is why a stream was not read to its end.
var errRequestTooLarge = errors.New("the request is too large")

// Target is what an import may contain.
type Target struct {
	Resource schema.GroupResource
	// Kind is the kind of the objects in the storage version.
	Kind schema.GroupVersionKind
	// Namespaced says whether the objects live in namespaces.
	Namespaced bool
}

// item is one event of a stream.
type item struct {
	// index counts from 1.
	index int64
	// name is namespace/name, or the name alone.
	name string
	// key is where the object is stored.
	key string
	// content is the object in its canonical form. It is nil for a deletion.
	content []byte
	// isNew says that the sender does not expect the object to be there.
	isNew bool
}

// frame is a metav1.WatchEvent whose object is not decoded yet.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// streamReader reads the events of an import one by one.
type streamReader struct {
	target  Target
	prefix  string
	decoder *json.Decoder
	// index and last are of the event that was read last.
	index int64
	last  string
	// total is the digest of all objects that were not deletions.
	total digest.Set
}

// newStreamReader reads events of the target from stream. The keys begin with prefix.
func newStreamReader(stream io.Reader, target Target, prefix string) *streamReader {
	return &streamReader{target: target, prefix: prefix, decoder: json.NewDecoder(&limitedReader{stream, MaxRequestBytes})}
}

// next returns io.EOF at the end of the stream, and an API status error for
// whatever is wrong with the stream or with an object. Nil without an error is an
// event that changes nothing.
func (r *streamReader) next(ctx context.Context) (*item, error) {
	var event frame
	start := r.decoder.InputOffset()
	if err := r.decoder.Decode(&event); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, r.streamError(err)
	}
	r.index++
	switch watch.EventType(event.Type) {
	case watch.Added, watch.Modified, watch.Deleted:
	case watch.Bookmark:
		return nil, nil
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: the type is %q, not one of ADDED, MODIFIED, DELETED and BOOKMARK", r.position(), event.Type))
	}
	var object map[string]any
	if err := utiljson.Unmarshal(event.Object, &object); err != nil || object == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: its object is no JSON object", r.position()))
	}
	it, err := r.item(ctx, object, watch.EventType(event.Type))
	if err != nil {
		return nil, err
	}
	if size := r.decoder.InputOffset() - start; size > MaxObjectBytes {
		return nil, tooLarge(it.name, fmt.Sprintf("it has %d bytes, more than the %d that an import takes", size, MaxObjectBytes))
	}
	r.last = it.name
	return it, nil
}

// position names the event that was read last, for when its object has no name.
func (r *streamReader) position() string {
	if r.last == "" {
		return fmt.Sprintf("event %d", r.index)
	}
	return fmt.Sprintf("event %d, which follows %s", r.index, r.last)
}

// streamError names the event that could not be read to its end.
func (r *streamReader) streamError(err error) error {
	r.index++
	switch {
	case errors.Is(err, errRequestTooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s: the request has more than %d bytes: send fewer objects at once", r.position(), MaxRequestBytes))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return apierrors.NewBadRequest(fmt.Sprintf("%s: the stream ends in the middle of it", r.position()))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("%s: it cannot be read: %v", r.position(), err))
	}
}

// item checks an object and brings it into its canonical form. Of an object that
// was deleted only the name counts.
func (r *streamReader) item(ctx context.Context, object map[string]any, event watch.EventType) (*item, error) {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	it := &item{index: r.index, name: displayName(namespace, name), isNew: event == watch.Added}
	if name == "" {
		it.name = r.position()
	}
	errs := r.validateName(namespace, name)
	if event != watch.Deleted {
		errs = append(errs, r.validate(object, metadata)...)
	}
	var err error
	if it.key, err = r.key(ctx, namespace, name); err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name, err.Error()))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(r.target.Kind.GroupKind(), it.name, errs)
	}
	if event == watch.Deleted {
		return it, nil
	}
	if it.content, err = digest.Canonical(object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", it.name, err))
	}
	r.total.Add(digest.OfBytes(it.content))
	return it, nil
}

func (r *streamReader) validateName(namespace, name string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata")
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), "an object is stored under its name"))
	}
	switch {
	case r.target.Namespaced && namespace == "":
		errs = append(errs, field.Required(path.Child("namespace"), "the resource is namespaced"))
	case !r.target.Namespaced && namespace != "":
		errs = append(errs, field.Forbidden(path.Child("namespace"), "the resource is cluster-scoped"))
	}
	return errs
}

func (r *streamReader) validate(object, metadata map[string]any) field.ErrorList {
	var errs field.ErrorList
	if got, want := object["apiVersion"], r.target.Kind.GroupVersion().String(); got != want {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), fmt.Sprint(got), []string{want}))
	}
	if got, want := object["kind"], r.target.Kind.Kind; got != want {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), fmt.Sprint(got), []string{want}))
	}
	if uid, _ := metadata["uid"].(string); uid == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), "an import keeps UIDs and makes none"))
	}
	return errs
}

// key is where the registry of custom resources looks for the object.
func (r *streamReader) key(ctx context.Context, namespace, name string) (string, error) {
	if !r.target.Namespaced {
		return genericregistry.NoNamespaceKeyFunc(ctx, r.prefix, name)
	}
	// A namespace is a part of the path as well.
	if _, err := genericregistry.NoNamespaceKeyFunc(ctx, r.prefix, namespace); err != nil {
		return "", err
	}
	return genericregistry.NamespaceKeyFunc(genericapirequest.WithNamespace(ctx, namespace), r.prefix, name)
}

func displayName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// limitedReader fails, other than io.LimitedReader, when there is more than the limit.
type limitedReader struct {
	inner io.Reader
	left  int64
}

// Read implements io.Reader.
func (r *limitedReader) Read(p []byte) (int, error) {
	if r.left < 0 {
		return 0, errRequestTooLarge
	}
	// One more byte than is left tells the end of the stream from too much of it.
	if int64(len(p)) > r.left+1 {
		p = p[:r.left+1]
	}
	n, err := r.inner.Read(p)
	r.left -= int64(n)
	if r.left < 0 {
		return n, errRequestTooLarge
	}
	return n, err
}
