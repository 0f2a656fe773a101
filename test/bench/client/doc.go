// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client sends the benchmark's LIST requests. It reads every answer to its
// end before the clock stops and counts the items after that, so that a wrong
// answer is an error and the time is that of the server and the bytes alone.
package client
