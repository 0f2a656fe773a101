// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// isBuiltInGroup reports whether kube-apiserver serves the group itself, from
// compiled-in types. Such a group has no CustomResourceDefinitions and can never
// be adopted. The list is every GroupName below k8s.io/kubernetes/pkg/apis, and
// the two groups that kube-apiserver gets from its delegates.
func isBuiltInGroup(group string) bool {
	return slices.Contains([]string{
		"",
		"abac.authorization.kubernetes.io",
		"admission.k8s.io",
		"admissionregistration.k8s.io",
		"apidiscovery.k8s.io",
		"apiextensions.k8s.io",
		"apiregistration.k8s.io",
		"apps",
		"authentication.k8s.io",
		"authorization.k8s.io",
		"autoscaling",
		"batch",
		"certificates.k8s.io",
		"coordination.k8s.io",
		"discovery.k8s.io",
		"events.k8s.io",
		"extensions",
		"flowcontrol.apiserver.k8s.io",
		"imagepolicy.k8s.io",
		"internal.apiserver.k8s.io",
		"lifecycle.k8s.io",
		"networking.k8s.io",
		"node.k8s.io",
		"policy",
		"rbac.authorization.k8s.io",
		"resource.k8s.io",
		"scheduling.k8s.io",
		"storage.k8s.io",
		"storagemigration.k8s.io",
	}, group)
}

// isOwnGroup reports whether the group belongs to annex, which must be able to
// serve it before anything is adopted.
func isOwnGroup(group string) bool {
	return group == kubeannex.GroupName || strings.HasSuffix(group, "."+kubeannex.GroupName)
}

// isProtectedGroup reports whether the community owns the group's domain. The
// rule is the one that makes a CustomResourceDefinition need an approval
// annotation (k8s.io/apiextensions-apiserver/pkg/apihelpers).
func isProtectedGroup(group string) bool {
	return apihelpers.IsProtectedCommunityGroup(group)
}

// startUpPurpose says what a group of custom resources does for a cluster that
// is just starting.
type startUpPurpose string

const (
	// purposeNetwork marks groups of network plugins: pods, annex's among them,
	// get no address while such a group cannot be read.
	purposeNetwork startUpPurpose = "pod network"
	// purposeStorage marks groups of volume drivers: annex's own volume may need them.
	purposeStorage startUpPurpose = "storage"
	// purposeCertificates marks groups that issue serving certificates, which
	// webhooks and annex itself may wait for.
	purposeCertificates startUpPurpose = "certificates"
)

// purposeOf returns what a cluster needs the group for in order to start, or ""
// when nothing is known. A cluster that loses all machines at once starts annex
// as ordinary pods, so whatever those pods wait for should not wait for annex.
// An entry covers its subdomains too: "cert-manager.io" stands for
// "acme.cert-manager.io" as well.
func purposeOf(group string) startUpPurpose {
	for _, entry := range []struct {
		domain  string
		purpose startUpPurpose
	}{
		{"antrea.io", purposeNetwork},                   // Antrea: crd.antrea.io
		{"cilium.io", purposeNetwork},                   // Cilium
		{"cni.cncf.io", purposeNetwork},                 // Multus, Whereabouts: k8s.cni.cncf.io
		{"crd.k8s.amazonaws.com", purposeNetwork},       // Amazon VPC CNI
		{"k8s.ovn.org", purposeNetwork},                 // OVN-Kubernetes
		{"kubeovn.io", purposeNetwork},                  // Kube-OVN
		{"metallb.io", purposeNetwork},                  // MetalLB
		{"networking.gke.io", purposeNetwork},           // GKE Dataplane
		{"operator.tigera.io", purposeNetwork},          // Calico operator
		{"projectcalico.org", purposeNetwork},           // Calico: crd.projectcalico.org
		{"vpcresources.k8s.aws", purposeNetwork},        // Amazon VPC resource controller
		{"ceph.io", purposeStorage},                     // Ceph CSI: csi.ceph.io
		{"ceph.rook.io", purposeStorage},                // Rook
		{"cns.vmware.com", purposeStorage},              // vSphere CSI
		{"internal.linstor.linbit.com", purposeStorage}, // LINSTOR
		{"libopenstorage.org", purposeStorage},          // Portworx: core.libopenstorage.org
		{"longhorn.io", purposeStorage},                 // Longhorn
		{"objectbucket.io", purposeStorage},             // object bucket provisioners
		{"openebs.io", purposeStorage},                  // OpenEBS: local.openebs.io, zfs.openebs.io
		{"piraeus.io", purposeStorage},                  // Piraeus
		{"storage.k8s.io", purposeStorage},              // snapshot.storage.k8s.io, groupsnapshot.storage.k8s.io
		{"topolvm.io", purposeStorage},                  // TopoLVM
		{"trident.netapp.io", purposeStorage},           // Trident
		{"cert-manager.io", purposeCertificates},        // cert-manager: also acme. and trust.
		{"certmanager.k8s.io", purposeCertificates},     // cert-manager before v0.11
		{"spire.spiffe.io", purposeCertificates},        // SPIRE
	} {
		if group == entry.domain || strings.HasSuffix(group, "."+entry.domain) {
			return entry.purpose
		}
	}
	return ""
}
