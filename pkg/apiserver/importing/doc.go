// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importing writes custom resources to storage as they are and reads them
// back as they are stored: nothing is defaulted, pruned, validated against a schema
// or converted, and no field of an object is set by the server. It is what moves a
// group between two API servers without losing UIDs.
//
// The objects go through the same storage.Interface, to the same keys, as those
// that the embedded server for custom resources writes, but without a watch cache
// and with a codec that knows bytes only (raw.go).
package importing
