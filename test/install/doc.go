// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install tests that Helm installs, upgrades and uninstalls the chart of
// config/chart/annex. Everything but the nodes is real: Helm, etcd, kube-apiserver,
// kube-controller-manager. The node of test/env/node runs our programs from the
// live Pods, so that the chart is the only source of their configuration.
package install
