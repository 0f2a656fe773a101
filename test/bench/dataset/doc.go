// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dataset makes up the objects of the benchmark: the definitions of three
// kinds, the objects of a seed, how many of them match a selector, and the loader
// that fills a server with them.
package dataset
