// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/pkg/storage/compact"
)

// compactPods is the kind of pods for a stack with compact objects, else nil.
func compactPods(t testing.TB, codec runtime.Codec, opts stackOptions) *compact.Kind {
	t.Helper()
	if !opts.compact {
		return nil
	}
	kind, err := compact.NewKind(newPod, podAttributes, podConverter{codec})
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

// podConverter makes content of pods by their codec. Custom resources need none.
type podConverter struct{ codec runtime.Codec }

// ToContent implements compact.Converter.
func (c podConverter) ToContent(object runtime.Object) (map[string]any, error) {
	data, err := runtime.Encode(c.codec, object)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	return content, utiljson.Unmarshal(data, &content)
}

// FromJSON implements compact.Converter.
func (c podConverter) FromJSON(data []byte, into runtime.Object) error {
	if err := runtime.SetZeroValue(into); err != nil {
		return err
	}
	return runtime.DecodeInto(c.codec, data, into)
}

// decodedEvents is a storage whose events have what compact objects stand for, which
// upstream's suites compare. In a server the encoders ask for it.
type decodedEvents struct{ storage.Interface }

// Watch implements storage.Interface.
func (s decodedEvents) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	watched, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(watched, func(event watch.Event) (watch.Event, bool) {
		for {
			object, ok := event.Object.(runtime.CacheableObject)
			if !ok {
				return event, true
			}
			event.Object = object.GetObject()
		}
	}), nil
}
