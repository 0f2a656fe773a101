// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e drives annex behind a real kube-apiserver with the real kubectl.
//
// The standard of right is kube-apiserver itself: two hosts are started, one
// serves the CRDs of the group lab.annex.test itself (the judge), the other
// sends the group to annex, where the same CRDs were created. Every step of a
// script runs on both, and output and exit code must be the same.
package e2e
