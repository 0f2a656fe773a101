// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package env starts the real parts of a cluster as processes on loopback for
// tests: etcd, kube-apiserver, kube-controller-manager and annex-apiserver.
// Every part can be killed, stopped, paused and restarted by itself.
//
// An Env owns a folder, a range of ports and all processes started through it.
// A test that needs servers of its own takes ForTest; a package whose tests
// share servers starts them once in TestMain through Main. The programs come
// from _output in the repository (make kubernetes, make build); a missing one
// is an error that names the command, never a skipped test.
//
// Both etcds keep their default durability: fsync stays on, so that host and
// annex pay the same price in a comparison and a killed etcd loses nothing.
package env
