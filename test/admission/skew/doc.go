// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew runs annex behind clusters that lack APIs which its plug-ins live on.
// They are today's kube-apiserver in the part of an older one; `make test-skew` builds
// a real one.
package skew
