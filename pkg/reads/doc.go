// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reads keeps account of who reads what. Every get, list and watch of a
// custom resource that reaches its handler leaves
//
//   - annotations of its audit event: what it was served from, by which rule and index, and how many objects that took;
//   - metrics, whose labels take few values;
//   - a row in a table of bounded size, which is served as the resource listprofiles.
//
// What was read the storage says: the handler puts an annexed.Recorder into the context of the request.
package reads
