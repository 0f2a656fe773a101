// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node stands for the nodes of a cluster in tests: kubelet, container
// engine, cluster DNS and kube-proxy in one. A pod becomes a group of processes
// on this machine, started exactly as the live Pod says and not as its author
// meant: command, arguments, environment, mounted volumes, user, probes, hooks
// and grace period all come from the API.
//
// What is as in a cluster: the objects and their status, so that the controllers
// of kube-controller-manager, kubectl and Helm work unchanged; init containers,
// restarts, graceful ends; volumes that follow their Secrets and ConfigMaps as
// kubelet's do; an address for every pod and every Service; connections that
// outlive the endpoint that they went to.
//
// What is not: an image is an empty root directory with the programs of
// Options.Programs. All containers of a pod share this root directory, so the
// programs of two of them could see each other's mounts. Memory and CPU are not
// limited, NetworkPolicies are not enforced, and a root directory that is meant to
// be read-only is so only for users other than root. Cluster DNS is a hosts file
// in every pod. EndpointSlices carry names instead of addresses, because the API
// refuses loopback addresses there; the names are in the hosts files too, so a
// program that reads EndpointSlices reaches the pods. Other addresses would need
// a network namespace, and with it rights that a build machine seldom gives.
package node
