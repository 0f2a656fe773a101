// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=kubeannex.io

// Package kubeannex holds the internal version of the kubeannex.io API, the one
// that validation and registry code work on. The served versions convert to and
// from it; it has no JSON form of its own.
package kubeannex
