// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario is what the tests of adoptions share: a cluster of real
// processes, groups of custom resources filled with objects of many shapes, and
// witnesses who tell afterwards what clients saw: snapshots of all objects,
// informers, raw watches and writers that keep a journal of every write that the
// server acknowledged.
//
// Every test takes a group of its own, so tests can share one cluster.
package scenario
