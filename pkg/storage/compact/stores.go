// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

var _ storage.Interface = &Front{}

// Front is the storage that a registry calls: it asks inner for Objects and answers with
// what they stand for. Events keep their Objects, which encode themselves
// (runtime.CacheableObject).
//
// Every method is written out: a method that upstream adds to storage.Interface
// must stop the build here.
type Front struct {
	inner storage.Interface
	kind  *Kind
}

// NewFront returns a Front for inner, whose caches have Objects of one kind.
func NewFront(inner storage.Interface, kind *Kind) *Front { return &Front{inner: inner, kind: kind} }

// Get implements storage.Interface. What etcd answers is decoded into objPtr at once.
func (f *Front) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	object := &Object{content: &content{kind: f.kind, target: objPtr}}
	if err := f.inner.Get(ctx, key, opts, object); err != nil {
		return err
	}
	switch {
	case object.content == nil: // there is none, which opts allow
		return runtime.SetZeroValue(objPtr)
	case object.target != nil:
		return nil
	default:
		return object.decode(objPtr)
	}
}

// GetList implements storage.Interface. A list for an Answer stays as it is, and listObj
// without items.
func (f *Front) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	opts.Predicate.GetAttrs = f.kind.Attributes
	list := &List{}
	if err := f.inner.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(listObj)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(list.ResourceVersion)
	accessor.SetContinue(list.Continue)
	accessor.SetRemainingItemCount(list.RemainingItemCount)
	opts.Predicate.SetShardInfoOnList(listObj)
	mode := modeOf(ctx)
	if mode.answer != nil {
		mode.answer.list, mode.answer.selected = list, !opts.Predicate.Empty()
		return emptyItems(listObj)
	}
	return f.decodeItems(ctx, list, listObj, mode.metadataOnly)
}

// decodeItems fills a list. It gives up when nobody waits for the answer any more: what is
// decoded takes several times the memory of the JSON.
func (f *Front) decodeItems(ctx context.Context, list *List, into runtime.Object, metadataOnly bool) error {
	pointer, err := meta.GetItemsPtr(into)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(pointer)
	if err != nil {
		return err
	}
	items.Set(reflect.MakeSlice(items.Type(), len(list.Items), len(list.Items)))
	for i := range list.Items {
		if err := ctx.Err(); err != nil {
			return err
		}
		item, ok := reflect.TypeAssert[runtime.Object](items.Index(i).Addr())
		if !ok {
			return fmt.Errorf("item of %T is no object", into)
		}
		if err := list.Items[i].decodeAs(metadataOnly, item); err != nil {
			return err
		}
	}
	return nil
}

// emptyItems leaves a list without items, as the Cacher leaves one.
func emptyItems(listObj runtime.Object) error { return meta.SetList(listObj, []runtime.Object{}) }

// Watch implements storage.Interface.
func (f *Front) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	opts.Predicate.GetAttrs = f.kind.Attributes
	return f.inner.Watch(ctx, key, opts)
}

// Versioner implements storage.Interface.
func (f *Front) Versioner() storage.Versioner { return f.inner.Versioner() }

// Create implements storage.Interface.
func (f *Front) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return f.inner.Create(ctx, key, obj, out, ttl)
}

// Delete implements storage.Interface.
func (f *Front) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions,
) error {
	return f.inner.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// GuaranteedUpdate implements storage.Interface.
func (f *Front) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object,
) error {
	return f.inner.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

// Stats implements storage.Interface.
func (f *Front) Stats(ctx context.Context) (storage.Stats, error) { return f.inner.Stats(ctx) }

// ReadinessCheck implements storage.Interface.
func (f *Front) ReadinessCheck() error { return f.inner.ReadinessCheck() }

// RequestWatchProgress implements storage.Interface.
func (f *Front) RequestWatchProgress(ctx context.Context) error {
	return f.inner.RequestWatchProgress(ctx)
}

// GetCurrentResourceVersion implements storage.Interface.
func (f *Front) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	return f.inner.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (f *Front) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	return f.inner.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (f *Front) CompactRevision() int64 { return f.inner.CompactRevision() }

var _ storage.Interface = &Back{}

// Back is the store that a cache of Objects reads from and that writes go to: it gives
// inner, an etcd3 store with Kind.Codec, the decoded object where the cache suggests an Object to a write.
type Back struct {
	inner storage.Interface
	kind  *Kind
}

// NewBack returns a Back for inner.
func NewBack(inner storage.Interface, kind *Kind) *Back { return &Back{inner: inner, kind: kind} }

// suggestion is what the Cacher has of an object, decoded. Without one, as when it cannot
// be decoded, the etcd3 store reads the object, as it does when the suggestion turns out to be old.
func suggestion(cached runtime.Object) runtime.Object {
	object, ok := cached.(*Object)
	if !ok {
		return cached
	}
	full, err := object.full()
	if err != nil {
		return nil
	}
	return full
}

// Get implements storage.Interface. It fills the target of an Object that has one.
func (b *Back) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	if object, ok := objPtr.(*Object); ok && object.content != nil && object.target != nil {
		return b.inner.Get(ctx, key, opts, object.target)
	}
	return b.inner.Get(ctx, key, opts, objPtr)
}

// Delete implements storage.Interface.
func (b *Back) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions,
) error {
	return b.inner.Delete(ctx, key, out, preconditions, validateDeletion, suggestion(cachedExistingObject), opts)
}

// GuaranteedUpdate implements storage.Interface.
func (b *Back) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object,
) error {
	return b.inner.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, suggestion(cachedExistingObject))
}

// GetList implements storage.Interface.
func (b *Back) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	return b.inner.GetList(ctx, key, opts, listObj)
}

// Watch implements storage.Interface.
func (b *Back) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return b.inner.Watch(ctx, key, opts)
}

// Versioner implements storage.Interface.
func (b *Back) Versioner() storage.Versioner { return b.inner.Versioner() }

// Create implements storage.Interface.
func (b *Back) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return b.inner.Create(ctx, key, obj, out, ttl)
}

// Stats implements storage.Interface.
func (b *Back) Stats(ctx context.Context) (storage.Stats, error) { return b.inner.Stats(ctx) }

// ReadinessCheck implements storage.Interface.
func (b *Back) ReadinessCheck() error { return b.inner.ReadinessCheck() }

// RequestWatchProgress implements storage.Interface.
func (b *Back) RequestWatchProgress(ctx context.Context) error {
	return b.inner.RequestWatchProgress(ctx)
}

// GetCurrentResourceVersion implements storage.Interface.
func (b *Back) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	return b.inner.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (b *Back) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	return b.inner.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (b *Back) CompactRevision() int64 { return b.inner.CompactRevision() }
