// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// fillClients is how many objects are created at the same time.
	fillClients = 16
	// progressSteps is how often progress is reported.
	progressSteps = 100
)

// CreateNamespaces creates the namespaces of a shape on the host. Those that exist
// are left as they are.
func (s Shape) CreateNamespaces(ctx context.Context, host *rest.Config) error {
	client, err := kubernetes.NewForConfig(Unlimited(host))
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillClients)
	for n := range s.Namespaces {
		group.Go(func() error {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName(n)}}
			_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating the namespace %s: %w", namespace.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Unlimited is a copy of a client configuration without a limit of requests.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0
	return config
}

// Fill creates the first count objects of a kind with several clients. Objects that
// exist are left as they are, so that it can be repeated. It calls progress, which
// may be nil, about a hundred times, and never twice at once. The namespaces must
// exist and the resource must be served.
func (s Shape) Fill(ctx context.Context, config *rest.Config, group string, kind Kind, count int, progress func(done, count int)) error {
	client, err := fillClient(config)
	if err != nil {
		return err
	}
	counter := &counter{count: count, report: progress}
	workers, ctx := errgroup.WithContext(ctx)
	for first := range fillClients {
		workers.Go(func() error {
			for i := first; i < count; i += fillClients {
				if err := s.create(ctx, client, group, kind, i); err != nil {
					return err
				}
				counter.add()
			}
			return nil
		})
	}
	return workers.Wait()
}

// fillClient does not decode what it has created.
func fillClient(config *rest.Config) (*rest.RESTClient, error) {
	config = Unlimited(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

func (s Shape) create(ctx context.Context, client *rest.RESTClient, group string, kind Kind, i int) error {
	body, err := s.JSON(group, kind, i)
	if err != nil {
		return err
	}
	path := CollectionPath(group, Version, kind, NamespaceName(s.Namespace(i)))
	err = client.Post().AbsPath(path).Param("fieldManager", kind.Manager()).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s: %w", ObjectName(kind, i), err)
	}
	return nil
}

// counter reports progress in steps.
type counter struct {
	count  int
	report func(done, count int)

	mu   sync.Mutex
	done int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	if c.report != nil && (c.done == c.count || c.done%max(1, c.count/progressSteps) == 0) {
		c.report(c.done, c.count)
	}
}
