// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kill is the slow half of the fault tests of adoptions: it ends etcds,
// kube-apiservers and several processes at once, at every phase. Only make
// test-full runs it.
package kill
