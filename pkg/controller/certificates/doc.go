// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates issues the certificates of annex and renews them while
// requests are under way.
//
// Everything that a later process needs is in the cluster. The Secret annex-ca
// holds up to three generations of authorities, and a step of a rotation is one
// update of it:
//
//	        current only                       nothing to do until two thirds of its life are over
//	             │ a next one is made
//	             ▼
//	Announcing   current, next                 signed by current, both trusted
//	             │ everybody was told of next, for the settling time
//	             ▼
//	Retiring     current (was next), old       signed by current, both trusted
//	             │ everybody presents what current signed, for the settling time
//	             ▼
//	        current only
//
// All the rest follows from that Secret and is repaired from it: the ConfigMap
// annex-ca-bundle with all authorities that are trusted, the Secrets of the
// certificates, and each caBundle by which kube-apiserver reaches annex.
package certificates
