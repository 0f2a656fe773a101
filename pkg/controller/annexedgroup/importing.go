// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
)

const (
	// maxBatchObjects and maxBatchBytes bound one import, so that it ends long
	// before servers cut a request off (60 seconds).
	maxBatchObjects = 1000
	maxBatchBytes   = 8 << 20
)

// errDifferent says that the copy is not what its source is.
var errDifferent = errors.New("the copy differs from its source")

// importer writes objects of one resource into annex, in batches.
type importer struct {
	client   rest.Interface
	mustLead func(context.Context) error
	group    string
	resource resource
	ledger   *ledger
	metrics  *Metrics

	body    bytes.Buffer
	objects int
	// content is the digest of what the batch puts, pending what the ledger learns when it has arrived.
	content digest.Set
	pending []func()
}

func (r *Reconciler) newImporter(group string, res resource, l *ledger) *importer {
	return &importer{client: r.Connections.Annex.Groups.KubeannexV1alpha1().RESTClient(), mustLead: r.mustLead, group: group, resource: res, ledger: l, metrics: r.Metrics}
}

// put adds an object that was read from the source, in the storage version. One
// that has taken the name of another is told as a deletion first.
func (i *importer) put(ctx context.Context, object *unstructured.Unstructured) error {
	key, seen := keyOf(object), known{uid: object.GetUID(), version: object.GetResourceVersion()}
	content, err := digest.Canonical(object.Object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", i.resource.plural, key, err)
	}
	kind := string(watch.Added)
	if old, ok := i.ledger.entries[key]; ok {
		if old.uid == seen.uid {
			kind = string(watch.Modified)
		} else if err := i.remove(ctx, key); err != nil {
			return err
		}
	}
	if err := i.room(ctx, len(content)); err != nil {
		return err
	}
	seen.entry = digest.OfBytes(content)
	i.event(kind, content)
	i.content.Add(seen.entry)
	i.pending = append(i.pending, func() { i.ledger.put(key, seen) })
	return nil
}

// remove adds the deletion of an object.
func (i *importer) remove(ctx context.Context, key string) error {
	namespace, name := splitKey(key)
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(i.resource.storage.GroupVersion().WithKind(i.resource.kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetUID(i.ledger.entries[key].uid)
	content, err := json.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("encoding the deletion of %s %s: %w", i.resource.plural, key, err)
	}
	if err := i.room(ctx, len(content)); err != nil {
		return err
	}
	i.event(string(watch.Deleted), content)
	i.pending = append(i.pending, func() { i.ledger.remove(key) })
	return nil
}

// room sends what has gathered when the next object does not fit.
func (i *importer) room(ctx context.Context, size int) error {
	if i.objects > 0 && (i.objects >= maxBatchObjects || i.body.Len()+size > maxBatchBytes) {
		return i.flush(ctx)
	}
	return nil
}

func (i *importer) event(kind string, object []byte) {
	fmt.Fprintf(&i.body, `{"type":%q,"object":`, kind)
	i.body.Write(object)
	i.body.WriteString("}\n")
	i.objects++
}

// flush sends what has gathered. What annex has taken of it must have the digest of what was sent.
func (i *importer) flush(ctx context.Context) error {
	if i.objects == 0 {
		return nil
	}
	// The copy need not start over because the lease cannot be read.
	if err := i.mustLead(ctx); errors.Is(err, errNotAlone) {
		return err
	}
	var result kubeannexv1alpha1.ImportResult
	err := answerOf(ctx, i.client.Post().Resource("annexedgroups").Name(i.group).SubResource(kubeannexv1alpha1.ImportSubresource).
		Param("resource", i.resource.plural).SetHeader("Content-Type", "application/json").Body(i.body.Bytes()), &result)
	if err != nil {
		return fmt.Errorf("importing %s into annex: %w", i.resource.plural, err)
	}
	if result.Digest != i.content.String() {
		return fmt.Errorf("annex stored something else than the %d %s that were imported: check the versions of annex-controller and annex-apiserver", i.objects, i.resource.plural)
	}
	for _, learn := range i.pending {
		learn()
	}
	i.metrics.wrote(i.group, i.resource.plural, toAnnex, i.objects)
	i.body.Reset()
	i.objects, i.content, i.pending = 0, digest.Set{}, nil
	return nil
}

// answerOf sends a request to a subresource and decodes its answer, which is
// plain JSON. Unlike DoRaw it keeps what the server says when it refuses.
func answerOf(ctx context.Context, request *rest.Request, into any) error {
	result := request.SetHeader("Accept", "application/json").Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	content, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return nil
}

// dropImported deletes annex's data of a group, of all resources.
func (r *Reconciler) dropImported(ctx context.Context, group string) error {
	if err := r.mustNotRoute(ctx, group); err != nil {
		return err
	}
	if err := r.mustLead(ctx); err != nil {
		return err
	}
	err := r.Connections.Annex.Groups.KubeannexV1alpha1().RESTClient().Delete().Resource("annexedgroups").Name(group).
		SubResource(kubeannexv1alpha1.ImportSubresource).SetHeader("Accept", "application/json").Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("dropping annex's data of the group: %w", err)
	}
	return nil
}

// storedDigest is the digest of what annex has stored of a resource.
func (r *Reconciler) storedDigest(ctx context.Context, group, plural string) (*kubeannexv1alpha1.ResourceDigest, error) {
	result := &kubeannexv1alpha1.ResourceDigest{}
	err := answerOf(ctx, r.Connections.Annex.Groups.KubeannexV1alpha1().RESTClient().Get().Resource("annexedgroups").Name(group).
		SubResource(kubeannexv1alpha1.DigestSubresource).Param("resource", plural), result)
	if err != nil {
		return nil, fmt.Errorf("reading annex's digest of %s: %w", plural, err)
	}
	return result, nil
}

// checkContent compares what annex has stored with the ledgers.
func (r *Reconciler) checkContent(ctx context.Context, group string, s *session) error {
	start := r.Clock.Now()
	for _, res := range s.resources {
		stored, err := r.storedDigest(ctx, group, res.plural)
		if err != nil {
			return err
		}
		expected := &s.ledgers[res.plural].content
		if stored.Objects != expected.Objects || stored.Digest != expected.String() {
			return fmt.Errorf("%w: annex has %d %s with digest %.12s, the cluster %d with digest %.12s",
				errDifferent, stored.Objects, res.plural, stored.Digest, expected.Objects, expected.String())
		}
	}
	s.checked, s.checkedTook = true, r.Clock.Since(start)
	return nil
}
