// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
)

// Config is what the storage of all resources of one server has in common.
type Config struct {
	// WatchCache puts the upstream watch cache between the decorator and etcd.
	// Without it every request is answered by etcd.
	WatchCache bool
	// Lazy leaves a storage without its watch cache until the first request that needs
	// it, which waits until it is filled. Upstream fills all caches, one for each served version of a
	// custom resource, whether anyone reads that version or not.
	Lazy bool
	// Compact lets the watch caches keep the JSON of custom resources instead of decoded
	// objects. Objects of other types must not be stored with it.
	Compact bool
	// Metrics receives the counts of requests to etcd. The caller owns and
	// registers it; one Metrics may serve many getters. Nil means not counted.
	Metrics *Metrics
	// Indexes says what the watch caches are indexed by. Nil means by nothing.
	Indexes IndexSource
	// Catalog is told of the storages with watch caches. Nil means nobody wants to know.
	Catalog *Catalog
	// Ended is called when a watch cache of a resource has ended, because another has replaced it or
	// with its storage, and its indexes are out of the metrics. Nil means nobody wants to know.
	Ended func(schema.GroupResource)
	// turns are those in which the storages build new caches.
	turns *turns
	// queue has room for the requests that wait for first caches. Nil means one for each storage.
	queue chan struct{}
}

// NewRESTOptionsGetter returns a getter that answers as delegate does, except
// that the storage of every resource is built by this package. The decorator
// that delegate chose is replaced, so its choice for or against a watch cache
// is too: Config.WatchCache decides.
//
// When indexes change, the storages of one getter build their new caches one after
// another. A server has one getter for all resources that have indexes.
func NewRESTOptionsGetter(delegate generic.RESTOptionsGetter, cfg Config) generic.RESTOptionsGetter {
	cfg.turns, cfg.queue = newTurns(turnPeriod), make(chan struct{}, firstFillQueue)
	return &restOptionsGetter{delegate: delegate, config: cfg}
}

var _ generic.RESTOptionsGetter = &restOptionsGetter{}

type restOptionsGetter struct {
	delegate generic.RESTOptionsGetter
	config   Config
}

// GetRESTOptions returns delegate's error untouched.
func (g *restOptionsGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.delegate.GetRESTOptions(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	options.Decorator = newDecorator(g.config)
	return options, nil
}
