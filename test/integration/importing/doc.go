// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importing shows that objects survive an import byte for byte, and what an import refuses.
package importing
