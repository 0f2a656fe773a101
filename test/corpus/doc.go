// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corpus loads the CustomResourceDefinitions of ten public projects, and
// the sample objects that they ship, into annex and into a real kube-apiserver
// and demands the same answers of both. Nothing of these projects is kept in this
// repository or compiled: modules.txt pins them, the go command fetches them and
// checks their sums, and the tests read their YAML. docs/corpus.md says what is
// compared.
package corpus
