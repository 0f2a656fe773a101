// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving holds the gate that every request for a resource of an adopted
// group passes. The gate obeys the status.serving of the AnnexedGroup alone:
//
//	mode       GET, LIST            WATCH                        everything else
//	Closed     503, Retry-After     503, Retry-After             503, Retry-After
//	ReadOnly   passes               streams                      429, Retry-After
//	Open       passes               streams                      passes
//	Released   429, Retry-After     410; running ones end so     429, Retry-After
//
// An empty mode is Closed. A group without an AnnexedGroup is not gated. Until the
// gate has read all AnnexedGroups and definitions once, it answers 503. Only what the
// server sends to itself always passes: kube-apiserver, which has the same name, must
// not see half a group either.
//
// A request that the cluster has sent here, of a group that has neither an
// AnnexedGroup nor a definition, is answered by 503 too. A server that has lost its
// etcd would say 404 of every object otherwise, and the garbage collector of the
// cluster would believe it. A client that comes by itself gets that 404.
//
// Before a server behind a cluster knows whose certificates that cluster trusts,
// WithTrust answers 503 to everybody, ahead of authentication.
//
// The gate also counts what it has let through. A mode is in force, which is what
// Gate.Serving reports, when everything that the mode does not allow and that was
// let through before is over: the controller relies on that to drain a group.
package serving
