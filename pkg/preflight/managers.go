// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tools that are told apart.
const (
	toolHelm   = "Helm"
	toolArgoCD = "Argo CD"
	toolFlux   = "Flux"
	toolOLM    = "OLM"
)

// managedObject is an object of the cluster that annex changes.
type managedObject struct {
	kind string
	metav1.Object
}

func (c *collector) lookAtManagers(context.Context) error {
	for _, object := range c.managed {
		for _, manager := range managersOf(object) {
			manager.ObjectKind, manager.ObjectName = object.kind, object.GetName()
			c.report.Managers = append(c.report.Managers, manager)
		}
	}
	slices.SortFunc(c.report.Managers, func(a, b Manager) int {
		return cmp.Or(cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.ObjectKind, b.ObjectKind), cmp.Compare(a.ObjectName, b.ObjectName))
	})
	c.checkManagers()
	return nil
}

// managersOf reads the traces that deployment tools leave on what they manage:
// labels, annotations, and field managers where nothing else tells.
func managersOf(object metav1.Object) []Manager {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	var managers []Manager
	if release := annotations["meta.helm.sh/release-name"]; release != "" {
		managers = append(managers, Manager{Tool: toolHelm, Owner: annotations["meta.helm.sh/release-namespace"] + "/" + release})
	} else if labels["app.kubernetes.io/managed-by"] == "Helm" || managesFields(object, "helm") {
		managers = append(managers, Manager{Tool: toolHelm})
	}
	if tracking := annotations["argocd.argoproj.io/tracking-id"]; tracking != "" {
		application, _, _ := strings.Cut(tracking, ":")
		managers = append(managers, Manager{Tool: toolArgoCD, Owner: application})
	} else if managesFields(object, "argocd-controller") || managesFields(object, "argocd-application-controller") {
		managers = append(managers, Manager{Tool: toolArgoCD, Owner: labels["app.kubernetes.io/instance"]})
	}
	for _, domain := range []string{"kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"} {
		if name := labels[domain+"/name"]; name != "" {
			managers = append(managers, Manager{Tool: toolFlux, Owner: labels[domain+"/namespace"] + "/" + name})
		}
	}
	if owner := olmOwner(labels); owner != "" {
		managers = append(managers, Manager{Tool: toolOLM, Owner: owner})
	}
	return managers
}

func managesFields(object metav1.Object, manager string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
}

// olmOwner returns the operator that OLM has installed the object for.
func olmOwner(labels map[string]string) string {
	var owners []string
	for key := range labels {
		if name, found := strings.CutPrefix(key, "operators.coreos.com/"); found {
			owners = append(owners, name)
		}
	}
	if len(owners) > 0 {
		return slices.Min(owners)
	}
	return labels["olm.owner"]
}

// checkManagers says what each tool may do to an adopted group. Those that set
// objects back to what they have written down are in the way of the moment at
// which annex changes the definitions.
func (c *collector) checkManagers() {
	for _, m := range c.report.Managers {
		owner := m.Tool
		if m.Owner != "" {
			owner += " (" + m.Owner + ")"
		}
		switch {
		case m.ObjectKind == "APIService":
			c.addf(SeverityWarning, CheckManagers, "%s manages APIService %s and could set it back, which sends clients to the cluster's old copies: take it out of its care before the adoption", owner, m.ObjectName)
		case m.Tool == toolArgoCD || m.Tool == toolFlux:
			c.addf(SeverityWarning, CheckManagers, "%s manages CustomResourceDefinition %s: suspend its synchronisation during adoption and release, when annex changes the definition", owner, m.ObjectName)
		default:
			c.addf(SeverityInfo, CheckManagers, "%s manages CustomResourceDefinition %s: upgrades are mirrored to annex, and removing it deletes its objects there as well", owner, m.ObjectName)
		}
	}
}
