// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// CABundles are all fields of the host that tell kube-apiserver by which
// authorities it verifies annex and its controller: in the APIServices that name
// annex and in the webhooks that name the controller. Nobody else's are touched.
type CABundles struct {
	// Host is where they are.
	Host *cluster.Server
	// AnnexService is what APIServices of annex name.
	AnnexService apiregistrationv1.ServiceReference
	// Webhook is how kube-apiserver reaches the controller's webhooks, without a path.
	Webhook admissionregistrationv1.WebhookClientConfig
}

// Apply writes the authorities of annex and of the webhooks where others are.
// Every object is written as it was read: who wrote since decides, and the
// conflict is returned to be tried again.
func (c *CABundles) Apply(ctx context.Context, annex, webhooks []byte) error {
	if len(annex) == 0 || len(webhooks) == 0 {
		return nil // what is not known is not written
	}
	return c.each(ctx, c.Host, metav1.ListOptions{}, annex, webhooks, func(kind string, object metav1.Object) error {
		var err error
		switch object := object.(type) {
		case *apiregistrationv1.APIService:
			_, err = c.Host.APIServices.ApiregistrationV1().APIServices().Update(ctx, object, metav1.UpdateOptions{})
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			_, err = c.Host.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(ctx, object, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) { // one that is gone needs nothing
			return fmt.Errorf("writing the caBundle of %s %s: %w", kind, object.GetName(), err)
		}
		return nil
	})
}

// Check returns nil when a kube-apiserver has the authorities everywhere in its own
// cache, which is what its proxy and its admission are told from.
func (c *CABundles) Check(ctx context.Context, server *cluster.Server, annex, webhooks []byte) error {
	return c.each(ctx, server, metav1.ListOptions{ResourceVersion: "0"}, annex, webhooks, func(kind string, object metav1.Object) error {
		return fmt.Errorf("it does not know the authorities in %s %s yet", kind, object.GetName())
	})
}

// each gives every object of ours that has other authorities to found, with the right ones.
func (c *CABundles) each(ctx context.Context, server *cluster.Server, options metav1.ListOptions, annex, webhooks []byte, found func(kind string, object metav1.Object) error) error {
	services, err := server.APIServices.ApiregistrationV1().APIServices().List(ctx, options)
	if err != nil {
		return fmt.Errorf("listing APIServices: %w", err)
	}
	configurations, err := server.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, options)
	if err != nil {
		return fmt.Errorf("listing ValidatingWebhookConfigurations: %w", err)
	}
	var errs []error
	for index := range services.Items {
		if c.mendService(&services.Items[index], annex) {
			errs = append(errs, found("APIService", &services.Items[index]))
		}
	}
	for index := range configurations.Items {
		if c.mendWebhooks(&configurations.Items[index], webhooks) {
			errs = append(errs, found("ValidatingWebhookConfiguration", &configurations.Items[index]))
		}
	}
	return joined(errs)
}

// mendService says whether the APIService is annex's and was changed.
func (c *CABundles) mendService(service *apiregistrationv1.APIService, authorities []byte) bool {
	named := service.Spec.Service
	if named == nil || named.Namespace != c.AnnexService.Namespace || named.Name != c.AnnexService.Name {
		return false
	}
	if bytes.Equal(service.Spec.CABundle, authorities) && !service.Spec.InsecureSkipTLSVerify {
		return false
	}
	service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify = authorities, false
	return true
}

// mendWebhooks says whether any webhook is the controller's and was changed.
func (c *CABundles) mendWebhooks(configuration *admissionregistrationv1.ValidatingWebhookConfiguration, authorities []byte) bool {
	changed := false
	for index := range configuration.Webhooks {
		config := &configuration.Webhooks[index].ClientConfig
		if c.names(config) && !bytes.Equal(config.CABundle, authorities) {
			config.CABundle, changed = authorities, true
		}
	}
	return changed
}

// names says whether a webhook is served by the controller.
func (c *CABundles) names(config *admissionregistrationv1.WebhookClientConfig) bool {
	if ours := c.Webhook.Service; ours != nil {
		return config.Service != nil && config.Service.Namespace == ours.Namespace && config.Service.Name == ours.Name
	}
	return c.Webhook.URL != nil && config.URL != nil && strings.HasPrefix(*config.URL, *c.Webhook.URL+"/")
}
