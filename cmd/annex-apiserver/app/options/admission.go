// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/features"
	quotageneric "k8s.io/apiserver/pkg/quota/v1/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/admission/hostapis"
	"github.com/kubeannex/annex/pkg/admission/ownerreferences"
	"github.com/kubeannex/annex/pkg/admission/readiness"
	"github.com/kubeannex/annex/pkg/apiserver"
)

// admissionHookName is the name of the wait for what admission decides by in /readyz.
const admissionHookName = "admission-informers"

// NewAdmissionOptions returns the plug-ins of kube-apiserver that decide about custom
// resources, in its order and with its defaults (k8s.io/kubernetes
// pkg/kubeapiserver/options/plugins.go). The others of kube-apiserver are about
// built-in kinds, or deprecated.
func NewAdmissionOptions() *genericoptions.AdmissionOptions {
	options := genericoptions.NewAdmissionOptions()
	ownerreferences.Register(options.Plugins)
	resourcequota.Register(options.Plugins)
	options.RecommendedPluginOrder = []string{
		lifecycle.PluginName,
		ownerreferences.PluginName,
		mutatingpolicy.PluginName,
		mutatingwebhook.PluginName,
		validatingpolicy.PluginName,
		validatingwebhook.PluginName,
		resourcequota.PluginName,
	}
	options.DefaultOffPlugins = sets.New(ownerreferences.PluginName)
	return options
}

// quotaInitializer gives ResourceQuota no evaluators: it counts every resource that
// it has none for (k8s.io/apiserver pkg/admission/plugin/resourcequota/controller.go,
// Evaluate). The evaluators of kube-apiserver are about built-in kinds.
type quotaInitializer struct{}

var _ admission.PluginInitializer = quotaInitializer{}

// Initialize implements admission.PluginInitializer.
func (quotaInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(quotageneric.NewConfiguration(nil, nil))
	}
}

// bearMissingAPIs must be called before anything asks the cluster's informers.
func (o CompletedOptions) bearMissingAPIs(config *apiserver.Config) {
	var plugins []string
	if o.admits(mutatingpolicy.PluginName) && utilfeature.DefaultFeatureGate.Enabled(features.MutatingAdmissionPolicy) {
		plugins = append(plugins, hostapis.MutatingAdmissionPolicy)
	}
	if o.admits(validatingpolicy.PluginName) {
		plugins = append(plugins, hostapis.ValidatingAdmissionPolicy)
	}
	if o.Features.EnablePriorityAndFairness {
		plugins = append(plugins, hostapis.PriorityAndFairness)
	}
	config.ExtraConfig.HostAPIs.Install(config.GenericConfig.SharedInformerFactory, plugins...)
}

// admits returns whether a plug-in is in the chain.
func (o CompletedOptions) admits(plugin string) bool {
	if slices.Contains(o.Admission.EnablePlugins, plugin) {
		return true
	}
	return !slices.Contains(o.Admission.DisablePlugins, plugin) && !o.Admission.DefaultOffPlugins.Has(plugin)
}

// applyAdmission builds the chain of plug-ins.
func (o CompletedOptions) applyAdmission(config *apiserver.Config, kubeClient kubernetes.Interface, dynamicClient dynamic.Interface) error {
	generic := config.GenericConfig
	err := o.Admission.ApplyTo(&generic.Config, generic.SharedInformerFactory, kubeClient, dynamicClient,
		utilfeature.DefaultFeatureGate, generic.EffectiveVersion, quotaInitializer{})
	if err != nil {
		return err
	}
	chain, ok := generic.AdmissionControl.(readiness.Chain)
	if !ok {
		return fmt.Errorf("the chain of admission plug-ins is a %T, which does not admit and validate", generic.AdmissionControl)
	}
	informers := o.admissionInformers(generic.SharedInformerFactory)
	synced := make(chan struct{})
	generic.AdmissionControl = readiness.Wait(chain, synced)
	return generic.AddPostStartHook(admissionHookName, func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			var checkers []cache.DoneChecker
			for _, informer := range informers {
				checkers = append(checkers, informer.HasSyncedChecker())
			}
			if cache.WaitFor(hook, "", checkers...) {
				close(synced)
			}
		}()
		return nil
	})
}

// admissionInformers are those that the plug-ins of the chain have asked for.
func (o CompletedOptions) admissionInformers(factory informers.SharedInformerFactory) []cache.SharedIndexInformer {
	core, registrations := factory.Core().V1(), factory.Admissionregistration().V1()
	byPlugin := map[string]func() []cache.SharedIndexInformer{
		mutatingwebhook.PluginName: func() []cache.SharedIndexInformer {
			return []cache.SharedIndexInformer{registrations.MutatingWebhookConfigurations().Informer()}
		},
		validatingwebhook.PluginName: func() []cache.SharedIndexInformer {
			return []cache.SharedIndexInformer{registrations.ValidatingWebhookConfigurations().Informer()}
		},
		mutatingpolicy.PluginName: func() []cache.SharedIndexInformer {
			if !utilfeature.DefaultFeatureGate.Enabled(features.MutatingAdmissionPolicy) {
				return nil
			}
			return []cache.SharedIndexInformer{
				registrations.MutatingAdmissionPolicies().Informer(), registrations.MutatingAdmissionPolicyBindings().Informer(),
			}
		},
		validatingpolicy.PluginName: func() []cache.SharedIndexInformer {
			return []cache.SharedIndexInformer{
				registrations.ValidatingAdmissionPolicies().Informer(), registrations.ValidatingAdmissionPolicyBindings().Informer(),
			}
		},
		resourcequota.PluginName: func() []cache.SharedIndexInformer {
			return []cache.SharedIndexInformer{core.ResourceQuotas().Informer()}
		},
	}
	// Every plug-in asks for namespaces.
	result := []cache.SharedIndexInformer{core.Namespaces().Informer()}
	for plugin, informers := range byPlugin {
		if o.admits(plugin) {
			result = append(result, informers()...)
		}
	}
	return result
}
