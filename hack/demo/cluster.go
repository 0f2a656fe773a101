// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/test/corpus/modules"
	"github.com/kubeannex/annex/test/env"
)

const (
	argoModule    = "github.com/argoproj/argo-workflows/v4"
	kyvernoModule = "github.com/kyverno/kyverno"
	// writers is how many objects are created at a time.
	writers = 16
	// dependents is how many workflows own a ConfigMap, dependentLabel how they are found.
	dependents     = 50
	dependentLabel = "demo.kubeannex.io/dependent"
)

// dataset is one resource with its objects.
type dataset struct {
	schema.GroupVersionResource

	kind    string
	objects []*unstructured.Unstructured
	// label is the key and value by which the demonstration lists.
	label string
}

func (s *dataset) title() string { return s.GroupResource().String() }

func workflowSet(g *generator, count int) *dataset {
	s := &dataset{
		GroupVersionResource: schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "workflows"},
		kind:                 "Workflow", label: phaseLabel + "=Failed",
	}
	for i := range count {
		s.objects = append(s.objects, g.workflow(i))
	}
	return s
}

func reportSet(g *generator, count int) *dataset {
	s := &dataset{
		GroupVersionResource: schema.GroupVersionResource{Group: "wgpolicyk8s.io", Version: "v1alpha2", Resource: "policyreports"},
		kind:                 "PolicyReport", label: worstLabel + "=fail",
	}
	for i := range count {
		s.objects = append(s.objects, g.report(i))
	}
	return s
}

// startCluster starts a control plane, installs the definitions of two public
// projects and starts the garbage collector, which would delete the dependents of
// objects that seem to be gone.
func (d *demo) startCluster(ctx context.Context) error {
	var err error
	if d.host, err = d.env.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	if d.config, err = d.host.AdminConfig(); err != nil {
		return err
	}
	// The time of a LIST would be the time of gzip.
	d.config.DisableCompression = true
	if d.client, err = dynamic.NewForConfig(d.config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if d.definitions, err = d.installDefinitions(ctx); err != nil {
		return err
	}
	return d.host.StartControllerManager(ctx)
}

// startAnnex starts annex and its controller beside the cluster.
func (d *demo) startAnnex(ctx context.Context) error {
	var err error
	if d.annex, err = d.env.StartAnnex(ctx, env.AnnexOptions{Host: d.host}); err != nil {
		return err
	}
	if err := d.annex.RegisterAPIService(ctx, kubeannex.GroupName, "v1alpha1"); err != nil {
		return err
	}
	_, err = d.env.StartController(ctx, env.ControllerOptions{Host: d.host, Annex: d.annex})
	return err
}

// installDefinitions returns the number of definitions.
func (d *demo) installDefinitions(ctx context.Context) (int, error) {
	folders, err := modules.Fetch(ctx, d.dir, argoModule, kyvernoModule)
	if err != nil {
		return 0, err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, pattern := range []string{
		filepath.Join(folders[argoModule], "manifests", "base", "crds", "full", "argoproj.io_*.yaml"),
		filepath.Join(folders[kyvernoModule], "config", "crds", "policyreport", "wgpolicyk8s.io_*.yaml"),
	} {
		found, err := readDefinitions(pattern)
		if err != nil {
			return 0, err
		}
		definitions = append(definitions, found...)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, definition := range definitions {
		group.Go(func() error { return env.InstallCRD(ctx, d.config, definition) })
	}
	return len(definitions), group.Wait()
}

func readDefinitions(pattern string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no definition matches %s", pattern)
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, definition); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		definitions = append(definitions, definition)
	}
	return definitions, nil
}

// fill creates the namespaces and all objects.
func (d *demo) fill(ctx context.Context) error {
	for i := range namespaces {
		if err := env.EnsureNamespace(ctx, d.config, namespaceOf(i)); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, set := range d.sets() {
		resource := d.client.Resource(set.GroupVersionResource)
		for _, object := range set.objects {
			group.Go(func() error {
				_, err := resource.Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("creating %s %s: %w", set.kind, object.GetName(), err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// fillDependents creates ConfigMaps that belong to workflows.
func (d *demo) fillDependents(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(d.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	workflows := d.workflows
	for _, object := range workflows.objects[:dependents] {
		owner, err := d.client.Resource(workflows.GroupVersionResource).Namespace(object.GetNamespace()).
			Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading %s: %w", object.GetName(), err)
		}
		dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: owner.GetName(), Labels: map[string]string{dependentLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
		}}
		if _, err := client.CoreV1().ConfigMaps(dependent.Namespace).Create(ctx, dependent, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a ConfigMap: %w", err)
		}
	}
	return nil
}

// remainingDependents counts them.
func (d *demo) remainingDependents(ctx context.Context) (int, error) {
	client, err := kubernetes.NewForConfig(d.config)
	if err != nil {
		return 0, fmt.Errorf("making a client: %w", err)
	}
	list, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: dependentLabel + "=true"})
	if err != nil {
		return 0, fmt.Errorf("listing the dependents: %w", err)
	}
	return len(list.Items), nil
}
