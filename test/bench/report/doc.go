// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report turns the rounds of scenarios into ratios to the host, and prints
// them as a table, as JSON lines, as Markdown and as plots.
package report
