// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gate shows what clients see of a group in each of its serving modes.
package gate
