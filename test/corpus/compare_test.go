// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func namespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// both asks annex and host at the same time.
func both[T any](ctx context.Context, ask func(context.Context, *server) (T, error)) (annex, host T, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		annex, err = ask(ctx, suite.annex)
		return err
	})
	group.Go(func() (err error) {
		host, err = ask(ctx, suite.host)
		return err
	})
	return annex, host, group.Wait()
}

// sample is an object with the place where it goes.
type sample struct {
	document

	collection string
	path       string
	// identity is the same in every version.
	identity string
}

// newSample gives the object a name and a namespace if it has none. A name that
// the server would make up would be another one at each server.
func newSample(d document, known catalog, index int) sample {
	definition := known[d.gk()]
	object := d.DeepCopy()
	if object.GetName() == "" && object.GetGenerateName() != "" {
		object.SetName(fmt.Sprintf("%s%05d", object.GetGenerateName(), index))
	}
	namespace := ""
	if !definition.cluster {
		if namespace = object.GetNamespace(); namespace == "" {
			namespace = metav1.NamespaceDefault
		}
	}
	collection := collectionPath(definition.resource(object.GroupVersionKind().Version), namespace)
	return sample{
		document: document{object, d.source}, collection: collection, path: collection + "/" + object.GetName(),
		identity: strings.Join([]string{d.gk().String(), namespace, object.GetName()}, "/"),
	}
}

// result is what one server did with a sample.
type result struct {
	Created answer
	// Replaced is empty unless the name was taken.
	Replaced answer
}

// put creates the object, or updates the one that has its name.
func (s *server) put(ctx context.Context, object sample) (result, error) {
	created, err := s.post(ctx, object.collection, object.Unstructured)
	if err != nil || created.Code != http.StatusConflict {
		return result{Created: created.answer}, err
	}
	replaced, err := s.replace(ctx, object.path, object.Unstructured)
	return result{Created: created.answer, Replaced: replaced.answer}, err
}

func (r result) last() answer {
	if r.Replaced.Code != 0 {
		return r.Replaced
	}
	return r.Created
}

// compareSamples creates the samples of every set in both servers. Samples that
// share a name are handled in their order, the second one updates the first.
func (c *corpus) compareSamples(ctx context.Context, t *testing.T, sets []sampleSet) {
	for _, set := range sets {
		t.Run(set.module+" "+strings.Join(set.patterns, " "), func(t *testing.T) {
			found, err := set.samples(c.folders, c.known)
			if err != nil {
				t.Fatal(err)
			}
			series := map[string][]sample{}
			for i, d := range found {
				object := newSample(d, c.known, i)
				if !c.known[d.gk()].cluster && d.GetNamespace() != "" {
					c.ensureNamespace(ctx, t, d.GetNamespace())
				}
				series[object.identity] = append(series[object.identity], object)
			}
			codes := compareSeries(ctx, t, series)
			t.Logf("%d samples, answers of the host: %v", len(found), codes)
			if got := codes[http.StatusCreated] + codes[http.StatusOK]; got != set.accepted {
				t.Errorf("the host accepted %d of %d samples, want %d", got, len(found), set.accepted)
			}
		})
	}
}

// compareSeries returns how often the host gave each code.
func compareSeries(ctx context.Context, t *testing.T, series map[string][]sample) map[int]int {
	var mu sync.Mutex
	codes := map[int]int{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, identity := range slices.Sorted(maps.Keys(series)) {
		group.Go(func() error {
			for _, object := range series[identity] {
				annex, host, err := both(ctx, func(ctx context.Context, s *server) (result, error) { return s.put(ctx, object) })
				if err != nil {
					return fmt.Errorf("%s: %w", object.source, err)
				}
				mu.Lock()
				codes[host.last().Code]++
				mu.Unlock()
				if diff := difference(host, annex); diff != "" {
					t.Errorf("%s: %s, -host +annex:\n%s", object.source, object.path, diff)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	return codes
}

// compareExplain asks the real kubectl about some of the largest and oddest kinds.
func compareExplain(ctx context.Context, t *testing.T) {
	for _, field := range []string{
		"workflows.spec.templates.container", "cpol.spec.rules", "policyreports.results",
		"httproutes.spec.rules.filters", "workloads.status", "ksvc.spec.template",
		"prometheuses.spec.thanos", "metadata.releaseSeries", "certificates.spec.issuerRef",
	} {
		annex, host, err := both(ctx, func(ctx context.Context, s *server) (string, error) {
			result, err := s.kubectl.Run(ctx, "explain", field)
			return fmt.Sprintf("exit code %d\n%s%s", result.ExitCode, result.Stdout, result.Stderr), err
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference(host, annex); diff != "" {
			t.Errorf("kubectl explain %s, -host +annex:\n%s", field, diff)
		}
		if !strings.HasPrefix(annex, "exit code 0\n") || !strings.Contains(annex, "KIND:") {
			t.Errorf("kubectl explain %s: %s", field, annex)
		}
	}
}

// compareTakenNames adds a kind whose short name belongs to another kind of its
// group, and one in another group with the same short name. The corpus itself has
// short names twice only in different groups.
func compareTakenNames(ctx context.Context, t *testing.T) {
	for group, wantAccepted := range map[string]string{"cert-manager.io": "False", "taken.annex.test": "True"} {
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": "impostors." + group},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced",
				"names": map[string]any{"plural": "impostors", "kind": "Impostor", "shortNames": []any{"cert", "imp"}},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
				}},
			},
		}}
		d := newDefinition("", document{crd, "names"})
		annex, host, err := both(ctx, func(ctx context.Context, s *server) (verdict, error) { return s.define(ctx, d) })
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference(host.settled, annex.settled); diff != "" {
			t.Errorf("%s: -host +annex:\n%s", d.GetName(), diff)
		}
		if got := conditions(annex.settled.Object)["NamesAccepted"]; got != wantAccepted {
			t.Errorf("%s: NamesAccepted is %q, want %q", d.GetName(), got, wantAccepted)
		}
	}
}

// compareMissingWebhook uses a kind whose versions are converted by a webhook that
// does not run: the storage version is served, every other version fails.
func (c *corpus) compareMissingWebhook(ctx context.Context, t *testing.T) {
	peers := c.known[gkOf("metallb.io", "BGPPeer")]
	peers.Unstructured = peers.DeepCopy()
	// As it is shipped no server can store a peer: a bound of a required field does
	// not fit its format.
	for _, version := range versionsOf(peers.Unstructured) {
		for _, field := range []string{"myASN", "peerASN"} {
			unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", field, "maximum")
		}
	}
	peers.mark(1)
	c.update(ctx, t, []definition{peers}, false, 0)
	for _, version := range peers.served {
		peer := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "metallb.io/" + version,
			"kind":       "BGPPeer",
			"metadata":   map[string]any{"name": "peer-" + version},
			"spec":       map[string]any{"myASN": int64(64500), "peerASN": int64(64501), "peerAddress": "192.0.2.1"},
		}}
		object := newSample(document{peer, "peer " + version}, c.known, 0)
		annex, host, err := both(ctx, func(ctx context.Context, s *server) (result, error) { return s.put(ctx, object) })
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference(host, annex); diff != "" {
			t.Errorf("creating a peer in %s, -host +annex:\n%s", version, diff)
		}
		if got, want := annex.last().ok(), version == peers.storage; got != want {
			t.Errorf("creating a peer in %s: success is %t, want %t: %+v", version, got, want, annex)
		}
		t.Logf("creating a peer in %s: %d %s %s", version, annex.last().Code, annex.last().Reason, annex.last().Message)
	}
}

// compareRevisions updates definitions to their other channels.
func (c *corpus) compareRevisions(ctx context.Context, t *testing.T) {
	for i, entry := range revisions() {
		t.Run(entry.module+" "+entry.patterns[0], func(t *testing.T) {
			found, err := entry.definitions(c.folders)
			if err != nil {
				t.Fatal(err)
			}
			for j := range found {
				found[j].mark(i + 1)
			}
			c.update(ctx, t, found, entry.migrated, entry.refused)
		})
	}
}

// update loads new revisions of definitions into both servers at once.
func (c *corpus) update(ctx context.Context, t *testing.T, found []definition, migrated bool, refused int) {
	t.Helper()
	annex, host, err := both(ctx, func(ctx context.Context, s *server) (*definitionLoad, error) {
		for _, d := range found {
			if err := s.strike(ctx, d, migrated); err != nil {
				return nil, err
			}
		}
		return s.load(ctx, found)
	})
	if err != nil {
		t.Fatal(err)
	}
	compareVerdicts(t, found, annex, host, len(found)-refused)
	for _, d := range found {
		if host.verdicts[d.GetName()].created.ok() {
			c.known[gkOf(d.group, d.kind)] = d
		}
	}
}

// strike writes into the status of a definition that only its storage version is stored.
func (s *server) strike(ctx context.Context, d definition, migrated bool) error {
	if !migrated {
		return nil
	}
	path := definitionsPath + "/" + d.GetName()
	current, err := s.get(ctx, path)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedStringSlice(current.object.Object, []string{d.storage}, "status", "storedVersions"); err != nil {
		return err
	}
	body, err := current.object.MarshalJSON()
	if err != nil {
		return err
	}
	got, err := s.do(ctx, http.MethodPut, path+"/status", body)
	if err == nil && !got.ok() {
		err = fmt.Errorf("%s: writing the status of %s: %+v", s.name, d.GetName(), got.answer)
	}
	return err
}

// unreadable is the answer of the host to a list that etcd refuses as an object cannot be read. The
// host's cache was filled before there was that object. As long as it tries to go on, etcd
// answers; once it has to be filled anew, the same refusal comes with 429 and the cache's
// words before it (k8s.io/apiserver pkg/storage/cacher/ready.go). When that is depends on the host's watch alone.
func unreadable(host, annex answer) answer {
	message, anew := strings.CutPrefix(host.Message, "storage is (re)initializing: failed to list <unspecified>: ")
	if anew && host.Code == http.StatusTooManyRequests && annex.Code == http.StatusInternalServerError && message == annex.Message {
		return annex
	}
	return host
}

// compareStored reads everything back, from all namespaces, in every version.
func (c *corpus) compareStored(ctx context.Context, t *testing.T) {
	var objects, lists atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, kind := range slices.SortedFunc(maps.Keys(c.known), compareKinds) {
		d := c.known[kind]
		group.Go(func() error {
			for _, version := range d.served {
				path := collectionPath(d.resource(version), "")
				annex, host, err := both(ctx, func(ctx context.Context, s *server) (answer, error) {
					got, err := s.get(ctx, path)
					return got.answer, err
				})
				if err != nil {
					return err
				}
				if diff := difference(unreadable(host, annex), annex); diff != "" {
					t.Errorf("GET %s, -host +annex:\n%s", path, diff)
				}
				items, _ := annex.Object["items"].([]any)
				objects.Add(int64(len(items)))
				lists.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d lists of all served versions compared, %d objects in them", lists.Load(), objects.Load())
	if objects.Load() == 0 {
		t.Error("annex holds no object")
	}
	for _, s := range []*server{suite.annex, suite.host} {
		used, err := usageOf(s.process)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-5s after every kind was used: memory %d MiB, %d at most, CPU %s", s.name, used.rss/mebibyte, used.peak/mebibyte, used.cpu)
	}
}

// difference is cmp.Diff, faster where there is none.
func difference[T any](host, annex T) string {
	if reflect.DeepEqual(host, annex) {
		return ""
	}
	return cmp.Diff(host, annex)
}
