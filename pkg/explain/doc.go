// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain tells of a LIST, without running it, what it is served from, by
// which rule, and what it costs.
//
// For a resource that annex keeps it sends the request itself through the
// handlers of the server, as the user who asks and with annexed.WithExplanation in its
// context: what decides and what refuses is therefore the code that serves lists.
// For a resource of the cluster it knows the rules of kube-apiserver's releases,
// and says what it cannot know.
package explain
