// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"slices"
	"strconv"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
)

// releases are what this process remembers of the releases that are under way.
// What is lost with the process is read again.
type releases struct {
	mu     sync.Mutex
	byName map[string]*releaseSession

	// guard is held from reading which groups have to be guarded until that is applied.
	guard sync.Mutex
}

// get returns the session of an AnnexedGroup, nil when there is none.
func (r *releases) get(group *kubeannexv1alpha1.AnnexedGroup) *releaseSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if session := r.byName[group.Name]; session != nil && session.uid == group.UID {
		return session
	}
	return nil
}

// start replaces the session of an AnnexedGroup by an empty one.
func (r *releases) start(group *kubeannexv1alpha1.AnnexedGroup, definitions []apiextensionsv1.CustomResourceDefinition) *releaseSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]*releaseSession{}
	}
	session := &releaseSession{uid: group.UID, resources: resourcesOf(definitions), owners: hostcopy.Owners{}}
	for i := range definitions {
		session.copies = append(session.copies, newReleaseCopies(&definitions[i]))
	}
	r.byName[group.Name] = session
	return session
}

// drop forgets the session of a group.
func (r *releases) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, name)
}

// releaseSession is what is remembered of one release. Only the step of its group uses it.
type releaseSession struct {
	uid       types.UID
	resources []resource
	copies    []*releaseCopies
	// fenced is when writes began to be held back, zero when they are not.
	fenced time.Time
	// setbacks is how often they were held back in vain, notBefore when it may be tried again.
	setbacks  int
	notBefore time.Time
	// dependents are the resources where dependents of objects with new UIDs were
	// found. They are looked for before writes are held back.
	dependents []schema.GroupResource

	mu sync.Mutex
	// owners are the UIDs of annex that the cluster could not keep.
	owners hostcopy.Owners
}

// wanted is what the copy of an object has to be, as far as the UIDs of owners are known.
func (s *releaseSession) wanted(object *unstructured.Unstructured) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return hostcopy.Wanted(object, s.owners)
}

// learn notes the UID of a copy.
func (s *releaseSession) learn(object, copied types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object == copied {
		delete(s.owners, object)
	} else {
		s.owners[object] = copied
	}
}

// releaseCopies are the objects of one resource on both sides.
type releaseCopies struct {
	resource resource
	// status says that the resource has a status subresource.
	status bool
	// converted says that a webhook converts it, when the private version is not there.
	converted bool
	// since is the host's revision when the release began.
	since uint64
	// loaded says that all copies were read, compared that all objects of annex were compared with them once.
	loaded, compared bool

	mu      sync.Mutex
	sources map[string]source
	copies  map[string]copied
	// unborn are the objects that have no copy while none may be made, sorted.
	unborn []string
}

// source is an object of annex whose copy is what it has to be.
type source struct {
	uid     types.UID
	version string
	// owners are the UIDs of its ownerReferences, written those of its copy's.
	owners, written []types.UID
}

// copied is the host's copy of an object.
type copied struct {
	uid      types.UID
	version  string
	deleting bool
	form     hostcopy.Form
}

func newReleaseCopies(definition *apiextensionsv1.CustomResourceDefinition) *releaseCopies {
	c := &releaseCopies{resource: resourceOf(definition), sources: map[string]source{}, copies: map[string]copied{}}
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			c.status = version.Subresources != nil && version.Subresources.Status != nil
		}
	}
	_, c.converted = definition.Annotations[conversionAnnotation]
	// A definition without the annotation has no copies that a release made.
	c.since, _ = strconv.ParseUint(definition.Annotations[releaseRevisionAnnotation], 10, 64)
	return c
}

// put notes a copy as it was read or written.
func (c *releaseCopies) put(object *unstructured.Unstructured) error {
	form, err := hostcopy.FormOf(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies[keyOf(object)] = copied{
		uid: object.GetUID(), version: object.GetResourceVersion(), deleting: object.GetDeletionTimestamp() != nil, form: form,
	}
	return nil
}

func (c *releaseCopies) copyOf(key string) (copied, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.copies[key]
	return found, ok
}

// usable says that a copy can become that of an object: it has its UID, or the
// release made it. The API gave that one a UID of its own. A copy of an earlier
// object of the same name is never used: that one's UID is known as deleted. Nor
// is one that is being deleted while its object is not: that cannot be undone.
func (c *releaseCopies) usable(found copied, uid types.UID, deleting bool) bool {
	if found.deleting && !deleting {
		return false
	}
	if found.uid == uid {
		return true
	}
	revision, err := strconv.ParseUint(found.version, 10, 64)
	return err == nil && c.since > 0 && revision > c.since
}

// settle notes that the copy of an object is what it has to be.
func (c *releaseCopies) settle(object, wanted *unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[keyOf(object)] = source{
		uid: object.GetUID(), version: object.GetResourceVersion(), owners: ownersOf(object), written: ownersOf(wanted),
	}
}

// forget notes that a copy is gone.
func (c *releaseCopies) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sources, key)
	delete(c.copies, key)
}

func ownersOf(object *unstructured.Unstructured) []types.UID {
	var uids []types.UID
	for _, reference := range object.GetOwnerReferences() {
		uids = append(uids, reference.UID)
	}
	return uids
}

// differences compares what annex has with what was settled. Changed are the
// keys of objects to write, gone those of copies to delete, both sorted.
func (c *releaseCopies) differences(present map[string]metav1.PartialObjectMetadata, owners hostcopy.Owners) (changed, gone []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, object := range present {
		known, ok := c.sources[key]
		if !ok || known.uid != object.UID || known.version != object.ResourceVersion || known.outdated(owners) {
			changed = append(changed, key)
		}
	}
	for key := range c.copies {
		if _, ok := present[key]; !ok {
			gone = append(gone, key)
		}
	}
	slices.Sort(changed)
	slices.Sort(gone)
	return changed, gone
}

// outdated says that the copy names an owner by a UID that is known to be another one now.
func (s source) outdated(owners hostcopy.Owners) bool {
	for i, uid := range s.owners {
		if mapped, ok := owners[uid]; ok && mapped != s.written[i] {
			return true
		}
	}
	return false
}
