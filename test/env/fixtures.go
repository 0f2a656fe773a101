// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// FixtureGroup is the API group of all fixtures.
const FixtureGroup = "lab.annex.test"

// seedWriters is how many gadgets Seed creates at a time.
const seedWriters = 16

//go:embed testdata/*.yaml
var fixtures embed.FS

// GadgetYAML is the CRD of a namespaced kind with two versions, status, scale,
// printer columns and selectable fields, as YAML for kubectl.
func GadgetYAML() (string, error) { return fixture("gadget") }

// GadgetCRD is GadgetYAML decoded.
func GadgetCRD() (*apiextensionsv1.CustomResourceDefinition, error) { return fixtureCRD("gadget") }

// PlanetCRD is a cluster-scoped kind with a free form and no subresources.
func PlanetCRD() (*apiextensionsv1.CustomResourceDefinition, error) { return fixtureCRD("planet") }

// MorphCRD is a kind whose versions v1 (spec.color) and v2 (spec.colour) are
// converted by the given webhook.
func MorphCRD(webhook *ConversionWebhook) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := fixtureCRD("morph")
	if err != nil {
		return nil, err
	}
	url := webhook.URL()
	crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: webhook.CA()}
	return crd, nil
}

func fixture(name string) (string, error) {
	data, err := fixtures.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		return "", fmt.Errorf("reading a fixture: %w", err)
	}
	return string(data), nil
}

func fixtureCRD(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	data, err := fixture(name)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(data), crd); err != nil {
		return nil, fmt.Errorf("decoding the fixture %s: %w", name, err)
	}
	return crd, nil
}

// GadgetResource names the gadgets of one version.
func GadgetResource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: FixtureGroup, Version: version, Resource: "gadgets"}
}

// PlanetResource names the planets.
func PlanetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: FixtureGroup, Version: "v1", Resource: "planets"}
}

// Object builds an object of the fixture group at version v1.
func Object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: FixtureGroup, Version: "v1", Kind: kind})
	object.SetNamespace(namespace)
	object.SetName(name)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

// Gadget builds a gadget at version v1. Integers in spec must be int64.
func Gadget(namespace, name string, spec map[string]any) *unstructured.Unstructured {
	return Object("Gadget", namespace, name, spec)
}

// SeedGadget builds the i-th of a series of gadgets: colour red, blue or green
// but none for every tenth, size i%7, hot for odd i, label team a or b.
func SeedGadget(namespace string, i int) *unstructured.Unstructured {
	spec := map[string]any{"size": int64(i % 7), "hot": i%2 == 1}
	if i%10 != 0 {
		spec["color"] = []string{"red", "blue", "green"}[i%3]
	}
	gadget := Gadget(namespace, fmt.Sprintf("g-%05d", i), spec)
	gadget.SetLabels(map[string]string{"team": []string{"a", "b"}[i%2]})
	return gadget
}

// SeedGadgets creates the first n gadgets of the series in a namespace.
func SeedGadgets(ctx context.Context, config *rest.Config, namespace string, n int) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	gadgets := client.Resource(GadgetResource("v1")).Namespace(namespace)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(seedWriters)
	for i := range n {
		group.Go(func() error {
			_, err := gadgets.Create(ctx, SeedGadget(namespace, i), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("creating the gadgets: %w", err)
	}
	return nil
}

// EnsureNamespace creates a namespace unless it exists.
func EnsureNamespace(ctx context.Context, config *rest.Config, name string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err := ignoreAlreadyExists(err); err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// InstallGadgets is InstallCRD of GadgetCRD.
func InstallGadgets(ctx context.Context, config *rest.Config) error {
	crd, err := GadgetCRD()
	if err != nil {
		return err
	}
	return InstallCRD(ctx, config, crd)
}

// InstallCRD creates a CRD at the server of config and waits until it is
// established.
func InstallCRD(ctx context.Context, config *rest.Config, crd *apiextensionsv1.CustomResourceDefinition) error {
	client, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating CRD %s: %w", crd.Name, err)
	}
	last := errors.New("not asked yet")
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var got *apiextensionsv1.CustomResourceDefinition
		if got, last = crds.Get(ctx, crd.Name, metav1.GetOptions{}); last != nil {
			return false, nil
		}
		last = fmt.Errorf("conditions %v", got.Status.Conditions)
		return established(got), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for CRD %s: %w, last answer: %w", crd.Name, err, last)
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
