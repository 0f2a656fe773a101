// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// proxyDelay is how much later than the API a proxy knows of a changed endpoint.
// In a cluster it is about as long; a pod must bear new connections meanwhile.
const proxyDelay = time.Second

// proxy plays kube-proxy and cluster DNS: one listener for every port of every
// Service, one hosts file in every pod.
type proxy struct {
	node  *Node
	dirty chan struct{}

	mu         sync.Mutex
	forwarders map[string]*forwarder
	// services is what names are made of.
	services []*service
	// synced and applied number the states that were read and that listeners have.
	synced, applied int
}

// service is a Service with the pods behind it.
type service struct {
	*corev1.Service
	pods []*corev1.Pod
}

func newProxy(n *Node) *proxy {
	return &proxy{node: n, dirty: make(chan struct{}, 1), forwarders: map[string]*forwarder{}}
}

// poke makes the proxy look at Services and pods again.
func (p *proxy) poke() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

func (p *proxy) run(ctx context.Context) {
	var later sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-p.dirty:
			p.sync(ctx, &later)
		}
	}
	later.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.forwarders {
		f.close()
	}
}

// sync brings names and EndpointSlices up to date at once and the forwarders a bit later.
func (p *proxy) sync(ctx context.Context, later *sync.WaitGroup) {
	services, err := p.read()
	if err != nil {
		return // the listers of a stopped factory
	}
	p.mu.Lock()
	p.services = services
	p.synced++
	number := p.synced
	p.mu.Unlock()
	for _, worker := range p.node.running() {
		live := worker.object()
		if err := worker.writeHosts(p.hostsFor(live.Namespace)); err != nil {
			worker.event(ctx, "FailedHosts", err.Error())
		}
	}
	later.Go(func() {
		if sleep(ctx, proxyDelay) {
			p.forward(ctx, number, services)
		}
	})
	if err := p.writeSlices(ctx, services); err != nil && ctx.Err() == nil {
		later.Go(func() {
			if sleep(ctx, retryInterval) {
				p.poke()
			}
		})
	}
}

// read joins Services and pods.
func (p *proxy) read() ([]*service, error) {
	objects, err := p.node.serviceLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var services []*service
	for _, object := range objects {
		s := &service{Service: object}
		if len(object.Spec.Selector) > 0 {
			pods, err := p.node.podLister.Pods(object.Namespace).List(labels.SelectorFromSet(object.Spec.Selector))
			if err != nil {
				return nil, err
			}
			for _, live := range pods {
				if live.Status.PodIP != "" && !finished(live) {
					s.pods = append(s.pods, live)
				}
			}
			slices.SortFunc(s.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		}
		services = append(services, s)
	}
	return services, nil
}

// forward makes the listeners and their backends those of a state, unless those
// of a later one came first.
func (p *proxy) forward(ctx context.Context, number int, services []*service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number < p.applied {
		return
	}
	p.applied = number
	wanted := map[string][]string{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for i := range s.Spec.Ports {
			port := &s.Spec.Ports[i]
			if port.Protocol == corev1.ProtocolTCP {
				wanted[net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port.Port)))] = p.backends(s, port)
			}
		}
	}
	for address, f := range p.forwarders {
		if _, ok := wanted[address]; !ok {
			f.close()
			delete(p.forwarders, address)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(wanted)) {
		f := p.forwarders[address]
		if f == nil {
			var err error
			if f, err = newForwarder(ctx, address); err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			p.forwarders[address] = f
		}
		f.setBackends(wanted[address])
	}
}

// backends are the addresses that new connections to a port go to: ready pods,
// and ready ones that are terminating while there are no others.
func (p *proxy) backends(s *service, port *corev1.ServicePort) []string {
	if s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes" {
		return p.node.apiServers()
	}
	var ready, leaving []string
	for _, live := range s.pods {
		number, ok := targetPort(live, port)
		if !ok || !isReady(live) {
			continue
		}
		address := net.JoinHostPort(live.Status.PodIP, strconv.Itoa(int(number)))
		if live.DeletionTimestamp != nil {
			leaving = append(leaving, address)
		} else {
			ready = append(ready, address)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return leaving
}

// targetPort resolves the target of a Service port in a pod.
func targetPort(live *corev1.Pod, port *corev1.ServicePort) (int32, bool) {
	if port.TargetPort.Type == intstr.Int {
		if port.TargetPort.IntVal == 0 {
			return port.Port, true
		}
		return port.TargetPort.IntVal, true
	}
	for i := range live.Spec.Containers {
		for _, named := range live.Spec.Containers[i].Ports {
			if named.Name == port.TargetPort.StrVal {
				return named.ContainerPort, true
			}
		}
	}
	return 0, false
}

func isReady(live *corev1.Pod) bool {
	return slices.ContainsFunc(live.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
