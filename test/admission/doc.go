// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission asks a kube-apiserver that serves kinds itself, the same one in
// front of annex, and annex itself for the same writes, and demands the same verdicts.
package admission
