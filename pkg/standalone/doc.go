// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package standalone makes and keeps the credentials of a server that runs
// without a cluster: a certificate authority, a serving certificate, an
// administrator's client certificate with its kubeconfig, and a token file.
//
// Everything lies in the root directory, readable by its owner only. A second
// start reuses what is there. Files that cannot be used are reported and never
// overwritten; the serving and the administrator's certificate alone are
// renewed by themselves, at a start in the second half of their life and when the address of
// the server has changed.
package standalone
