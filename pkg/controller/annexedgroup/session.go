// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/fence"
	"github.com/kubeannex/annex/pkg/digest"
)

// sessions are what this process remembers of the adoptions that are under way.
// It is lost when the process ends; the steps then go back to where it can be made again.
type sessions struct {
	mu     sync.Mutex
	byName map[string]*session

	// fences are those that this process has put up, by group.
	fences map[string]fence.Fence

	// flip is held while the age of a fence decides whether the first APIService
	// is changed or the fence taken down.
	flip sync.Mutex
}

// get returns the session of an AnnexedGroup, nil when there is none.
func (s *sessions) get(group *kubeannexv1alpha1.AnnexedGroup) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.byName[group.Name]; session != nil && session.uid == group.UID {
		return session
	}
	return nil
}

// start replaces the session of an AnnexedGroup by an empty one.
func (s *sessions) start(group *kubeannexv1alpha1.AnnexedGroup, resources []resource) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName == nil {
		s.byName = map[string]*session{}
	}
	started := &session{uid: group.UID, resources: resources, ledgers: map[string]*ledger{}}
	for _, r := range resources {
		started.ledgers[r.plural] = newLedger()
	}
	s.byName[group.Name] = started
	return started
}

// drop forgets the session of a group.
func (s *sessions) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
}

// raised notes a fence that is up, for KeepFences.
func (s *sessions) raised(f fence.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fences == nil {
		s.fences = map[string]fence.Fence{}
	}
	s.fences[f.Group] = f
}

// lowered notes that the fence of a group is down.
func (s *sessions) lowered(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fences, group)
}

// standing returns the fences that this process has put up and not taken down.
func (s *sessions) standing() []fence.Fence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.fences))
}

// session is what is remembered of one adoption. Only the step of its group uses it.
type session struct {
	uid types.UID
	// resources are those of the group when the copy began.
	resources []resource
	// ledgers are by plural name.
	ledgers map[string]*ledger
	// complete says that every object was copied once.
	complete bool
	// checked says that annex's data were compared with the ledgers; what was
	// imported since then was compared batch by batch. It took that long.
	checked     bool
	checkedTook time.Duration
	// fence is the one that the ledgers are complete behind.
	fence *fence.Fence
	// setbacks is how often a fence had to be lifted in vain, notBefore when the next may be raised.
	setbacks  int
	notBefore time.Time
}

// ledger is what is known of the objects of one resource at the source.
type ledger struct {
	entries map[string]known
	// content is the digest of all objects, identity that of their names, UIDs and resource versions.
	content  digest.Set
	identity digest.Set
}

// known is one object as it was last seen.
type known struct {
	uid     types.UID
	version string
	entry   digest.Entry
}

func newLedger() *ledger { return &ledger{entries: map[string]known{}} }

// put notes an object that was read.
func (l *ledger) put(key string, object known) {
	l.remove(key)
	l.entries[key] = object
	l.content.Add(object.entry)
	l.identity.Add(identityOf(key, object.uid, object.version))
}

// remove notes that an object is gone.
func (l *ledger) remove(key string) {
	old, ok := l.entries[key]
	if !ok {
		return
	}
	delete(l.entries, key)
	l.content.Remove(old.entry)
	l.identity.Remove(identityOf(key, old.uid, old.version))
}

// comparison is what a list of the source showed that the ledger does not know,
// page by page.
type comparison struct {
	ledger *ledger
	seen   map[string]struct{}
	// changed are the keys of new and changed objects.
	changed []string
}

func (l *ledger) compare() *comparison {
	return &comparison{ledger: l, seen: make(map[string]struct{}, len(l.entries))}
}

func (c *comparison) add(items []metav1.PartialObjectMetadata) {
	for i := range items {
		key := keyOf(&items[i])
		c.seen[key] = struct{}{}
		old, ok := c.ledger.entries[key]
		if !ok || old.uid != items[i].UID || old.version != items[i].ResourceVersion {
			c.changed = append(c.changed, key)
		}
	}
}

// gone are the keys of objects that the ledger knows and the list did not show, sorted.
func (c *comparison) gone() []string {
	var gone []string
	for key := range c.ledger.entries {
		if _, ok := c.seen[key]; !ok {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	return gone
}

// keyOf is "namespace/name", or the name of a cluster-scoped object.
func keyOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// identityOf is the member of the host digest for one object.
func identityOf(key string, uid types.UID, version string) digest.Entry {
	return digest.OfBytes([]byte(key + "\x00" + string(uid) + "\x00" + version))
}

// splitKey takes a key apart.
func splitKey(key string) (namespace, name string) {
	if before, after, ok := strings.Cut(key, "/"); ok {
		return before, after
	}
	return "", key
}
