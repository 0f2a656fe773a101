// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestchain shows that annex knows, allows, impersonates and records users as
// kube-apiserver does: the same request goes to a custom resource that kube-apiserver
// serves itself, which is the judge, to an adopted one through kube-apiserver, and to
// the adopted one past it.
package requestchain
