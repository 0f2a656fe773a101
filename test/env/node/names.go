// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// clusterDomain ends every name of a cluster.
const clusterDomain = "cluster.local"

// namedPods is how many pod addresses get a name beforehand, so that a name from
// an EndpointSlice is known to a pod that read its hosts file seconds ago.
const namedPods = 250

// podName is the name of an address. It stands in EndpointSlices, which the API
// allows to hold names but not loopback addresses.
func podName(ip string) string {
	return strings.ReplaceAll(ip, ".", "-") + ".pod." + clusterDomain
}

// hostsFor returns the hosts file for the pods of a namespace.
func (p *proxy) hostsFor(namespace string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hosts strings.Builder
	line := func(ip string, names ...string) { fmt.Fprintf(&hosts, "%s %s\n", ip, strings.Join(names, " ")) }
	line("127.0.0.1", "localhost", podName("127.0.0.1"))
	for i := range namedPods {
		ip := p.node.network.PodIP(i)
		line(ip, podName(ip))
	}
	for _, s := range p.services {
		if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
			line(s.Spec.ClusterIP, serviceNames(namespace, s.Namespace, s.Name)...)
		}
		for _, live := range s.pods {
			if !isReady(live) && !s.Spec.PublishNotReadyAddresses {
				continue
			}
			if s.Spec.ClusterIP == corev1.ClusterIPNone {
				line(live.Status.PodIP, serviceNames(namespace, s.Namespace, s.Name)...)
			}
			if live.Spec.Subdomain == s.Name && live.Spec.Hostname != "" {
				line(live.Status.PodIP, serviceNames(namespace, s.Namespace, live.Spec.Hostname+"."+s.Name)...)
			}
		}
	}
	return hosts.String()
}

// serviceNames are all forms of a name that the search list of a pod leads to.
func serviceNames(from, namespace, name string) []string {
	full := name + "." + namespace
	names := []string{full, full + ".svc", full + ".svc." + clusterDomain}
	if from == namespace {
		names = append(names, name)
	}
	return names
}

// writeHosts replaces the hosts file of a pod that has a root directory already.
func (p *pod) writeHosts(content string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	content += p.ip + " " + hostname(p.live) + "\n"
	if content == p.hosts {
		return nil
	}
	etc := filepath.Join(p.root, "etc")
	if _, err := os.Stat(etc); err != nil {
		return nil // the pod is not there yet, or has gone
	}
	if err := os.WriteFile(filepath.Join(etc, "hosts.new"), []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing a hosts file: %w", err)
	}
	if err := os.Rename(filepath.Join(etc, "hosts.new"), filepath.Join(etc, "hosts")); err != nil {
		return fmt.Errorf("writing a hosts file: %w", err)
	}
	p.hosts = content
	return nil
}

// apiServers are the addresses behind the Service of kube-apiserver.
func (n *Node) apiServers() []string {
	var addresses []string
	for _, server := range n.options.Host.APIServers {
		addresses = append(addresses, strings.TrimPrefix(server.URL, "https://"))
	}
	return addresses
}

// writeSlices does the work of the EndpointSlice controller, which would write
// the addresses of pods, and the API refuses those that are loopback.
func (p *proxy) writeSlices(ctx context.Context, services []*service) error {
	for _, s := range services {
		wanted, err := p.slices(s)
		if err != nil {
			return err
		}
		for _, slice := range wanted {
			if err := p.writeSlice(ctx, slice); err != nil {
				return err
			}
		}
	}
	return nil
}

// slices returns the EndpointSlices of a Service.
func (p *proxy) slices(s *service) ([]*discoveryv1.EndpointSlice, error) {
	if s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes" {
		return p.apiServerSlices(s)
	}
	if len(s.Spec.Selector) == 0 {
		return nil, nil
	}
	slice := newSlice(s, s.Name+"-node")
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		for _, live := range s.pods {
			// Pods of one Service agree about their ports, or else need slices of their own.
			if number, ok := targetPort(live, port); ok {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &number, Protocol: &port.Protocol})
				break
			}
		}
	}
	for _, live := range s.pods {
		serving, leaving := isReady(live), live.DeletionTimestamp != nil
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{podName(live.Status.PodIP)},
			Conditions: discoveryv1.EndpointConditions{
				Ready:       ptr.To((serving && !leaving) || s.Spec.PublishNotReadyAddresses),
				Serving:     ptr.To(serving || s.Spec.PublishNotReadyAddresses),
				Terminating: &leaving,
			},
			NodeName:  ptr.To(nodeName),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: live.Namespace, Name: live.Name, UID: live.UID},
		})
	}
	return []*discoveryv1.EndpointSlice{slice}, nil
}

func newSlice(s *service, name string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: s.Name,
				discoveryv1.LabelManagedBy:   "node.annex.test",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Service, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: discoveryv1.AddressTypeFQDN,
	}
}

// apiServerSlices say where the kube-apiservers are. They have different ports,
// so each has a slice.
func (p *proxy) apiServerSlices(s *service) ([]*discoveryv1.EndpointSlice, error) {
	var all []*discoveryv1.EndpointSlice
	for i, address := range p.node.apiServers() {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("parsing the address of kube-apiserver: %w", err)
		}
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("parsing the port of kube-apiserver: %w", err)
		}
		slice := newSlice(s, fmt.Sprintf("%s-%d", s.Name, i))
		slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(number)), Protocol: ptr.To(corev1.ProtocolTCP)}}
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{podName(host)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}
		all = append(all, slice)
	}
	return all, nil
}

func (p *proxy) writeSlice(ctx context.Context, wanted *discoveryv1.EndpointSlice) error {
	client := p.node.client.DiscoveryV1().EndpointSlices(wanted.Namespace)
	live, err := client.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(live.Endpoints, wanted.Endpoints) && apiequality.Semantic.DeepEqual(live.Ports, wanted.Ports) {
		return nil
	}
	wanted.ResourceVersion = live.ResourceVersion
	_, err = client.Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}
