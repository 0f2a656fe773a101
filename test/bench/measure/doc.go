// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure reads what servers cost from the operating system and from
// themselves, and sums up latencies and rounds.
package measure
