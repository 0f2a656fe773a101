// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annexed is the storage seam of annex: everything between the generic
// registry and the upstream etcd3 store.
//
//	generic registry Store
//	  → decorator (store.go)
//	    → the cache in service (rotation.go), with its indexes (generation.go)
//	    → cacher.CacheDelegator, cacher.Cacher   (k8s.io/apiserver, unchanged)
//	      → the source that a Cacher is cut off from before it ends (source.go)
//	        → counting store (counting.go)
//	          → etcd3 store                      (k8s.io/apiserver, unchanged)
//
// NewRESTOptionsGetter is the only way in. Which requests go to the cache and
// which to etcd is upstream's decision and stays there; this package only sees
// and counts what was decided (metrics.go).
//
// Nothing here knows an API type: objects are runtime.Object and may be of any
// Go type, so that the upstream storage suites, written for one example type,
// run over it. docs/adr/0005-indexes.md says how indexes come and go,
// docs/adr/0001-storage-seam.md why the seam is here.
package annexed
