// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parity sends the same requests to a real kube-apiserver and to annex,
// which both serve the same custom resources, and demands the same answers:
// status code, headers that clients read, body and watch events, byte for byte
// but for what differs between any two writes (UID, resource version, time).
// Every test also states the right answer, so that a mistake of both is found.
//
// Where a comment names an issue, the test does what its reporters did. They are
// public issues on GitHub, most of Kubernetes.
//
// Annex is asked twice: at its own address, and through the aggregator of
// kube-apiserver for a copy of the kinds in a second group. All servers share one
// cluster, so admission sees the same namespaces everywhere.
package parity
