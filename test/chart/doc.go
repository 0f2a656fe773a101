// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart without running what it installs: Helm
// renders it with every set of values in config/chart/annex/ci, and a real
// kube-apiserver says whether it would accept the objects. What the pre-delete
// hook asks the cluster is asked here too. Kinds of other projects have definitions
// in testdata, with the fields that the chart uses.
package chart
