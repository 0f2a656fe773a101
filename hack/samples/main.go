// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command samples fills a server with objects of the shape of one example,
// spread over nodes, namespaces and applications.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// applications are the values of the app label. Their number is coprime to the usual numbers of nodes and namespaces,
// so that every node has pods of every application.
var applications = [...]string{"nginx", "redis", "api", "worker", "batch", "web", "cache"}

type options struct {
	kubeconfig string
	example    string
	resource   string
	count      int
	nodes      int
	namespaces int
	clients    int
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "The server to fill.")
	flag.StringVar(&o.example, "example", filepath.Join("artifacts", "podendpoint.yaml"), "The object to copy.")
	flag.StringVar(&o.resource, "resource", "podendpoints", "The resource of the object.")
	flag.IntVar(&o.count, "count", 3000, "How many objects to create.")
	flag.IntVar(&o.nodes, "nodes", 150, "Over how many nodes to spread them.")
	flag.IntVar(&o.namespaces, "namespaces", 10, "Over how many namespaces to spread them.")
	flag.IntVar(&o.clients, "clients", 16, "How many objects to create at the same time.")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "samples: %v\n", err)
		os.Exit(1)
	}
}

// run creates the objects that are not there yet.
func (o options) run(ctx context.Context) error {
	content, err := os.ReadFile(o.example)
	if err != nil {
		return fmt.Errorf("reading the example: %w", err)
	}
	example := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &example.Object); err != nil {
		return fmt.Errorf("reading the example %s: %w", o.example, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	gv, err := schema.ParseGroupVersion(example.GetAPIVersion())
	if err != nil {
		return fmt.Errorf("reading the example %s: %w", o.example, err)
	}
	resource := client.Resource(gv.WithResource(o.resource))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.clients)
	for i := range o.count {
		group.Go(func() error {
			object, err := o.object(example, i)
			if err != nil {
				return err
			}
			_, err = resource.Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating %s/%s: %w", object.GetNamespace(), object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// object is the i-th copy of the example.
func (o options) object(example *unstructured.Unstructured, i int) (*unstructured.Unstructured, error) {
	object := example.DeepCopy()
	application := applications[i%len(applications)]
	object.SetName(fmt.Sprintf("%s-%d", application, i))
	object.SetNamespace(fmt.Sprintf("team-%d", i%o.namespaces))
	object.SetLabels(map[string]string{"app": application})
	if err := unstructured.SetNestedField(object.Object, fmt.Sprintf("node%d", i%o.nodes), "spec", "nodeName"); err != nil {
		return nil, fmt.Errorf("setting spec.nodeName: %w", err)
	}
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&0xff, i>>8&0xff, i&0xff)
	if err := unstructured.SetNestedField(object.Object, ip, "spec", "ip"); err != nil {
		return nil, fmt.Errorf("setting spec.ip: %w", err)
	}
	return object, nil
}
