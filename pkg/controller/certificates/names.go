// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"strings"
)

const serviceSuffix = ".svc"

// ServiceNames returns names with, for those of Services and pods, also the long
// form in the DNS domain of the cluster, such as cluster.local.
func ServiceNames(clusterDomain string, names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, name)
		if strings.HasSuffix(name, serviceSuffix) {
			all = append(all, name+"."+clusterDomain)
		}
	}
	return all
}

// localNames are those by which a process reaches itself.
func localNames() []string { return []string{"localhost", "127.0.0.1", "::1"} }

// ServerLeaf is the certificate of annex-apiserver, whose Service is reached by name.
func ServerLeaf(clusterDomain, service string) Leaf {
	return serving(ServerSecret, clusterDomain, service)
}

// ControllerLeaf is the certificate of the webhooks, reached by the name of their
// Service or by other names.
func ControllerLeaf(clusterDomain, service string, others ...string) Leaf {
	return serving(ControllerSecret, clusterDomain, service, others...)
}

func serving(secret, clusterDomain, service string, others ...string) Leaf {
	leaf := Leaf{Secret: secret, CommonName: service, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	seen := map[string]bool{}
	for _, name := range append(append(ServiceNames(clusterDomain, service), localNames()...), others...) {
		if !seen[name] {
			seen[name] = true
			leaf.Names = append(leaf.Names, name)
		}
	}
	return leaf
}
