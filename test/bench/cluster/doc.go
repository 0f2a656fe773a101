// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster starts what the benchmark measures: a kube-apiserver with its
// etcd, and one annex-apiserver with an etcd of its own beside it, all with their
// default settings. The same three kinds are custom resources of both: one API
// group is served by the host itself, the other by annex, which the host reaches
// through its aggregator. A Side is one way to one of them.
package cluster
