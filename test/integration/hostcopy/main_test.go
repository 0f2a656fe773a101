// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcopy_test writes objects back onto the copies of a real kube-apiserver.
package hostcopy_test

import (
	"context"
	"os"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/test/env"
)

const namespace = "hostcopy"

// Two clusters of one kube-apiserver each: the first stands for
// annex, whose objects are written back to the second.
var source, target dynamic.Interface

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, func(ctx context.Context, e *env.Env) error {
		var err error
		if source, err = start(ctx, e, "source"); err != nil {
			return err
		}
		target, err = start(ctx, e, "target")
		return err
	}))
}

func start(ctx context.Context, e *env.Env, name string) (dynamic.Interface, error) {
	host, err := e.StartHost(ctx, env.HostOptions{Name: name})
	if err != nil {
		return nil, err
	}
	config, err := host.AdminConfig()
	if err != nil {
		return nil, err
	}
	if err := install(ctx, config, name == "target"); err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

func install(ctx context.Context, config *rest.Config, private bool) error {
	if err := env.EnsureNamespace(ctx, config, namespace); err != nil {
		return err
	}
	gadget, err := env.GadgetCRD()
	if err != nil {
		return err
	}
	if private {
		version := hostcopy.Relax(&gadget.Spec.Versions[0])
		version.Name, version.Storage = kubeannexv1alpha1.PrivateVersion, false
		gadget.Spec.Versions = append(gadget.Spec.Versions, *version)
		tighten(&gadget.Spec.Versions[0])
	}
	return env.InstallCRD(ctx, config, gadget)
}

// tighten refuses objects that the source allows.
func tighten(version *apiextensionsv1.CustomResourceDefinitionVersion) {
	version.Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{Rule: "has(self.spec) && self.spec.size < 100"}}
}

func gadgets(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: env.FixtureGroup, Version: version, Resource: "gadgets"}
}
