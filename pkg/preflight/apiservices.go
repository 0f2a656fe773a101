// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// automanagedLabel marks APIServices that kube-apiserver keeps by itself
// (k8s.io/kube-aggregator/pkg/controllers/autoregister).
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

func (c *collector) lookAtAPIServices(ctx context.Context) error {
	list, err := c.clients.APIServices.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return c.unreadable(CheckAPIServices, "APIServices", err)
	}
	annex := sets.New[string]()
	for i := range list.Items {
		if spec := &list.Items[i].Spec; spec.Group == kubeannex.GroupName && spec.Service != nil {
			annex.Insert(serviceOf(spec))
		}
	}
	for i := range list.Items {
		if service := &list.Items[i]; service.Spec.Group == c.group {
			c.report.APIServices = append(c.report.APIServices, describeAPIService(service, annex))
			c.managed = append(c.managed, managedObject{"APIService", service})
		}
	}
	slices.SortFunc(c.report.APIServices, func(a, b APIService) int { return cmp.Compare(a.Name, b.Name) })
	c.checkAPIServices()
	return nil
}

func describeAPIService(service *apiregistrationv1.APIService, annex sets.Set[string]) APIService {
	described := APIService{
		Name:      service.Name,
		Version:   service.Spec.Version,
		Route:     RouteLocal,
		Service:   serviceOf(&service.Spec),
		Available: string(apiregistrationv1.ConditionUnknown),
	}
	if condition := apiregistrationhelper.GetAPIServiceConditionByType(service, apiregistrationv1.Available); condition != nil {
		described.Available = string(condition.Status)
	}
	switch {
	case annex.Has(described.Service):
		described.Route = RouteAnnex
	case described.Service != "":
		described.Route = RouteForeign
	case service.Labels[automanagedLabel] == "true":
		described.Route = RouteAutomanaged
	}
	return described
}

func serviceOf(spec *apiregistrationv1.APIServiceSpec) string {
	if spec.Service == nil {
		return ""
	}
	return spec.Service.Namespace + "/" + spec.Service.Name
}

// checkAPIServices holds to the rule that all versions of a group are adopted or none.
func (c *collector) checkAPIServices() {
	known := sets.New[string]()
	for _, service := range c.report.APIServices {
		known.Insert(service.Version)
		switch service.Route {
		case RouteForeign:
			c.addf(SeverityRefusal, CheckAPIServices, "version %s is served by another API server, service %s: all versions of a group are adopted or none, so this one cannot be", service.Version, service.Service)
		case RouteAnnex:
			c.addf(SeverityRefusal, CheckAPIServices, "APIService %s points to annex already: see \"kubectl annex status\", or \"Disaster recovery\" of the operations page when that does not show the group as annexed; do not change the APIService by hand", service.Name)
		case RouteLocal:
			c.addf(SeverityRefusal, CheckAPIServices, "APIService %s is not managed by kube-apiserver: delete it, kube-apiserver makes it anew", service.Name)
		}
	}
	served := sets.New[string]()
	for _, resource := range c.report.Resources {
		served.Insert(resource.ServedVersions...)
	}
	for _, version := range sets.List(served.Difference(known)) {
		c.addf(SeverityRefusal, CheckAPIServices, "version %s has no APIService: kube-apiserver makes it within seconds of the version being served, see its log if it does not", version)
	}
}

// local reports whether kube-apiserver itself answers requests for a version.
// Nothing is known when APIServices could not be read: then it is assumed.
func (c *collector) local(version string) bool {
	i := slices.IndexFunc(c.report.APIServices, func(s APIService) bool { return s.Version == version })
	if i < 0 {
		return true
	}
	route := c.report.APIServices[i].Route
	return route == RouteLocal || route == RouteAutomanaged
}
