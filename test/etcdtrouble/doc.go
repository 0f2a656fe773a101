// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtrouble holds the tests of what clients notice when annex's etcd is full or drops old
// revisions under them. A kube-apiserver that serves the same kind from an etcd in the same trouble is the judge.
package etcdtrouble
