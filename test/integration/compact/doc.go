// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compact compares two servers over one etcd: one keeps custom resources encoded in
// its watch cache, the other decoded. A client must not be able to tell them apart, so every
// answer is compared byte for byte.
package compact
