// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates has tests of certificates that annex-controller issues, with
// two kube-apiservers, two replicas of annex and two controllers. A goroutine gives
// the Secret of annex to its processes as files, as late as a kubelet would.
package certificates
