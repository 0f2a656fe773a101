// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption moves API groups into annex and back on real processes: two
// kube-apiservers, two replicas of annex, the controller. Clients that work
// meanwhile tell what they saw.
//
// All tests share one cluster and take a group each. A test that ends processes
// starts them again at its end. The slow half of the fault tests is in the folder kill.
package adoption
