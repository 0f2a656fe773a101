// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shutdown holds the test of a replica that stops under load.
package shutdown
