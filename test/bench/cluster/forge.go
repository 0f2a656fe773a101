// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/test/bench/dataset"
)

// forgeSamples is how many objects of a kind are created by requests and compared
// with what forging them would give.
func forgeSamples(kind dataset.Kind) int {
	if kind == dataset.Endpoints {
		return 100
	}
	return 10
}

// forge writes the objects of a kind that were not created by requests to the host's etcd,
// as kube-apiserver would have, and to annex's unless that is nil: at 1,000 requests a
// second, creating them would take longer than many a scenario. Time and manager are taken
// from the objects that were created by requests; forged again, each of these must be
// what kube-apiserver has stored, to the byte.
func (c *Cluster) forge(ctx context.Context, kind dataset.Kind, host, annex *clientv3.Client) error {
	first := c.samples(kind)
	if first == c.Sizes.Count(kind) {
		return nil
	}
	template, err := c.checkedTemplate(ctx, host, kind, first)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(c.Sizes.Seed, uint64(kind))) //nolint:gosec // UIDs are no secrets
	puts, putting := errgroup.WithContext(ctx)
	puts.SetLimit(putters)
	for i := first; i < c.Sizes.Count(kind) && putting.Err() == nil; i++ {
		uid := newUID(random)
		puts.Go(func() error {
			value, err := template.forge(c.Sizes.Shape, kind, i, uid)
			if err != nil {
				return err
			}
			key := objectKey(c.Sizes.Shape, kind, i)
			if err := put(putting, host, key, value); err != nil || annex == nil {
				return err
			}
			return putAnnexed(putting, annex, key, value)
		})
	}
	if err := puts.Wait(); err != nil {
		return err
	}
	if err := c.checkCount(ctx, host, dataset.HostGroup, kind); err != nil || annex == nil {
		return err
	}
	return c.checkCount(ctx, annex, dataset.AnnexedGroup, kind)
}

func objectKey(shape dataset.Shape, kind dataset.Kind, i int) string {
	return etcdPrefix(dataset.HostGroup, kind) + dataset.NamespaceName(shape.Namespace(i)) + "/" + dataset.ObjectName(kind, i)
}

// newUID makes a UID of the form that API servers make (RFC 9562, version 4).
func newUID(random *rand.Rand) types.UID {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], random.Uint64())
	binary.BigEndian.PutUint64(b[8:], random.Uint64())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// template is the metadata that kube-apiserver gives to an object.
type template struct {
	creationTimestamp string
	// entry is the one of managedFields, without the fields.
	entry map[string]any
}

func templateOf(stored *unstructured.Unstructured) (template, error) {
	entries, _, err := unstructured.NestedSlice(stored.Object, "metadata", "managedFields")
	if err == nil && len(entries) != 1 {
		err = fmt.Errorf("managedFields has %d entries", len(entries))
	}
	if err != nil {
		return template{}, fmt.Errorf("reading %s: %w", stored.GetName(), err)
	}
	created, _, err := unstructured.NestedString(stored.Object, "metadata", "creationTimestamp")
	return template{creationTimestamp: created, entry: entries[0].(map[string]any)}, err
}

// forge returns object i as kube-apiserver stores it.
func (t template) forge(shape dataset.Shape, kind dataset.Kind, i int, uid types.UID) ([]byte, error) {
	object := shape.Object(dataset.HostGroup, kind, i)
	entry := maps.Clone(t.entry)
	entry["fieldsV1"] = fieldsOf(object.Object)
	object.SetUID(uid)
	object.SetGeneration(1)
	metadata, _ := object.Object["metadata"].(map[string]any)
	metadata["creationTimestamp"], metadata["managedFields"] = t.creationTimestamp, []any{entry}
	return object.MarshalJSON()
}

// fieldsOf are the fields that the creator of an object manages, in the form of
// FieldsV1 (structured-merge-diff/fieldpath): all but what identifies the object.
// Lists are atomic in our definitions.
func fieldsOf(object map[string]any) map[string]any {
	fields := map[string]any{}
	for name, value := range object {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		if name == "metadata" {
			labels := value.(map[string]any)["labels"]
			fields["f:metadata"] = map[string]any{"f:labels": fieldsBelow(labels)}
			continue
		}
		fields["f:"+name] = fieldsBelow(value)
	}
	return fields
}

func fieldsBelow(value any) map[string]any {
	fields := map[string]any{}
	members, isMap := value.(map[string]any)
	if isMap {
		fields["."] = map[string]any{}
	}
	for name, member := range members {
		fields["f:"+name] = fieldsBelow(member)
	}
	return fields
}

// checkedTemplate returns a template when, with its own time and UID, every object
// below count is forged to what is stored.
func (c *Cluster) checkedTemplate(ctx context.Context, host *clientv3.Client, kind dataset.Kind, count int) (template, error) {
	var last template
	for i := range count {
		found, err := host.Get(ctx, objectKey(c.Sizes.Shape, kind, i))
		if err == nil && len(found.Kvs) != 1 {
			err = errors.New("it is not there")
		}
		if err != nil {
			return template{}, fmt.Errorf("reading %s from etcd: %w", dataset.ObjectName(kind, i), err)
		}
		stored := &unstructured.Unstructured{}
		if err := json.Unmarshal(found.Kvs[0].Value, stored); err != nil {
			return template{}, fmt.Errorf("decoding %s: %w", dataset.ObjectName(kind, i), err)
		}
		if last, err = templateOf(stored); err != nil {
			return template{}, err
		}
		forged, err := last.forge(c.Sizes.Shape, kind, i, stored.GetUID())
		if err != nil {
			return template{}, err
		}
		if diff := cmp.Diff(string(found.Kvs[0].Value), string(forged)); diff != "" {
			return template{}, fmt.Errorf("%s is forged to something else than kube-apiserver has stored (-stored +forged):\n%s", stored.GetName(), diff)
		}
	}
	return last, nil
}
