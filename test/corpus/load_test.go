// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// parallel is how many requests are under way at each server.
	parallel = 8
	// pollInterval is the pause between two looks at something that is not there yet.
	pollInterval = 200 * time.Millisecond
)

// catalog finds the definition of a kind.
type catalog map[schema.GroupKind]definition

func newCatalog(definitions []definition) catalog {
	known := catalog{}
	for _, d := range definitions {
		known[schema.GroupKind{Group: d.group, Kind: d.kind}] = d
	}
	return known
}

// verdict is what a server says to one definition.
type verdict struct {
	// created is the answer to the request.
	created answer
	// settled is the definition once its conditions say whether it is served.
	settled answer
}

// definitionLoad is one load of many definitions into one server.
type definitionLoad struct {
	verdicts map[string]verdict

	// settled and published are how long it took until all definitions had settled
	// and until all of them were in OpenAPI.
	settled, published time.Duration
}

// load creates or, for a revision, updates all definitions at once and waits
// until each is established or refused and all are published.
func (s *server) load(ctx context.Context, definitions []definition) (*definitionLoad, error) {
	begin := time.Now()
	result := &definitionLoad{verdicts: map[string]verdict{}}
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, d := range definitions {
		group.Go(func() error {
			v, err := s.define(groupCtx, d)
			mu.Lock()
			defer mu.Unlock()
			result.verdicts[d.GetName()] = v
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	result.settled = time.Since(begin)
	if err := s.waitPublished(ctx, definitions, result.verdicts); err != nil {
		return nil, err
	}
	result.published = time.Since(begin)
	return result, s.readBack(ctx, result.verdicts)
}

// readBack reads the definitions again: the conditions besides those that were
// waited for may have come later.
func (s *server) readBack(ctx context.Context, verdicts map[string]verdict) error {
	for name, v := range verdicts {
		if !v.created.ok() {
			continue
		}
		got, err := s.get(ctx, definitionsPath+"/"+name)
		if err != nil {
			return err
		}
		v.settled = got.answer
		verdicts[name] = v
	}
	return nil
}

func (s *server) define(ctx context.Context, d definition) (v verdict, err error) {
	path := definitionsPath + "/" + d.GetName()
	created, err := s.post(ctx, definitionsPath, d.Unstructured)
	if err == nil && created.Code == 409 {
		created, err = s.replace(ctx, path, d.Unstructured)
	}
	v.created = created.answer
	// What a controller wrote meanwhile depends on when the server answers.
	delete(v.created.Object, "status")
	removeManagedStatus(v.created.Object)
	if err != nil || !created.ok() {
		return v, err
	}
	if err := s.follow(ctx, created.object, settled); err != nil {
		return v, fmt.Errorf("%s: waiting for %s: %w", s.name, d.GetName(), err)
	}
	settled, err := s.get(ctx, path)
	v.settled = settled.answer
	return v, err
}

// follow watches one definition from the state that is given until done.
func (s *server) follow(ctx context.Context, crd *unstructured.Unstructured, done func(*unstructured.Unstructured) bool) error {
	watcher, err := s.dynamic.Resource(definitionsResource()).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + crd.GetName(), ResourceVersion: crd.GetResourceVersion(),
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for !done(crd) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, conditions %v", context.Cause(ctx), conditions(crd.Object))
		case event, ok := <-watcher.ResultChan():
			if !ok || event.Type == watch.Error {
				return fmt.Errorf("the watch ended: %v", event.Object)
			}
			crd, _ = event.Object.(*unstructured.Unstructured)
		}
	}
	return nil
}

func definitionsResource() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// removeManagedStatus removes who owns the status.
func removeManagedStatus(object map[string]any) {
	list, ok, _ := unstructured.NestedSlice(object, "metadata", "managedFields")
	if !ok {
		return
	}
	list = slices.DeleteFunc(list, func(entry any) bool {
		fields, _ := entry.(map[string]any)
		return fields["subresource"] == "status"
	})
	_ = unstructured.SetNestedSlice(object, list, "metadata", "managedFields")
}

// conditions returns the status of every condition by its type.
func conditions(object map[string]any) map[string]string {
	found := map[string]string{}
	for _, condition := range mapsAt(object, "status", "conditions") {
		kind, _ := condition["type"].(string)
		found[kind], _ = condition["status"].(string)
	}
	return found
}

// settled tells whether the names are refused or the definition is served.
func settled(crd *unstructured.Unstructured) bool {
	found := conditions(crd.Object)
	return found["NamesAccepted"] == "False" || found["Established"] == "True"
}

// waitPublished waits until OpenAPI v3 shows every established definition, in
// its last revision, in every version that is served.
func (s *server) waitPublished(ctx context.Context, definitions []definition, verdicts map[string]verdict) error {
	missing := map[schema.GroupVersion][]definition{}
	for _, d := range definitions {
		if conditions(verdicts[d.GetName()].settled.Object)["Established"] != "True" {
			continue
		}
		for _, version := range d.served {
			gv := schema.GroupVersion{Group: d.group, Version: version}
			missing[gv] = append(missing[gv], d)
		}
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		for _, gv := range slices.SortedFunc(maps.Keys(missing), func(a, b schema.GroupVersion) int {
			return strings.Compare(a.String(), b.String())
		}) {
			if published, err := s.published(ctx, gv, missing[gv]); err != nil || !published {
				return false, err
			}
			delete(missing, gv)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: waiting for OpenAPI of %d group versions: %w", s.name, len(missing), err)
	}
	return nil
}

func (s *server) published(ctx context.Context, gv schema.GroupVersion, definitions []definition) (bool, error) {
	got, err := s.get(ctx, "/openapi/v3/apis/"+gv.String())
	if err != nil || !got.ok() {
		return false, err
	}
	schemas, _, _ := unstructured.NestedFieldNoCopy(got.object.Object, "components", "schemas")
	byName, _ := schemas.(map[string]any)
	for _, d := range definitions {
		if !slices.ContainsFunc(slices.Collect(maps.Values(byName)), func(value any) bool {
			return showsRevision(value, gv, d)
		}) {
			return false, nil
		}
	}
	return true, nil
}

// showsRevision tells whether value is the schema of the kind in its last revision.
func showsRevision(value any, gv schema.GroupVersion, d definition) bool {
	fields, _ := value.(map[string]any)
	kinds, _ := fields["x-kubernetes-group-version-kind"].([]any)
	if len(kinds) != 1 {
		return false
	}
	kind, _ := kinds[0].(map[string]any)
	if kind["group"] != gv.Group || kind["version"] != gv.Version || kind["kind"] != d.kind {
		return false
	}
	description, _ := fields["description"].(string)
	return d.revision == 0 || strings.HasSuffix(description, revisionMark(d.revision))
}

func revisionMark(revision int) string { return fmt.Sprintf(" (revision %d)", revision) }

// mark adds the number of a revision to the description of every version, which
// is how its arrival in OpenAPI is seen.
func (d *definition) mark(revision int) {
	d.revision = revision
	for _, version := range versionsOf(d.Unstructured) {
		top, _, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema")
		if fields, ok := top.(map[string]any); ok {
			description, _ := fields["description"].(string)
			fields["description"] = description + revisionMark(revision)
		}
	}
}
