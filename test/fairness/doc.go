// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairness holds the tests of limits: what a noisy client may take, what others notice of it, and
// what a list is reckoned to cost.
package fairness
