// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Pool makes a Server for each process of a server and keeps it, so that its
// connections are used again.
type Pool struct {
	// kind is what messages call a process, such as "kube-apiserver".
	kind   string
	base   *rest.Config
	bundle *Bundle

	mu      sync.Mutex
	servers map[string]*Server
}

// NewPool returns a pool whose servers are reached with the credentials of base
// and verified by the name serverName, whatever their address is.
func NewPool(kind string, base *rest.Config, serverName string) *Pool {
	base = rest.CopyConfig(base)
	base.ServerName = serverName
	return &Pool{kind: kind, base: base, servers: map[string]*Server{}}
}

// Follow makes the pool verify servers by a bundle, see NewFollowingServer. It is
// called before the first use.
func (p *Pool) Follow(bundle *Bundle) *Pool {
	p.bundle = bundle
	return p
}

// Server returns the server at a URL.
func (p *Pool) Server(address string) (*Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if server, ok := p.servers[address]; ok {
		return server, nil
	}
	config := rest.CopyConfig(p.base)
	config.Host = address
	server, err := NewFollowingServer(p.kind+" "+address, config, p.bundle)
	if err != nil {
		return nil, err
	}
	p.servers[address] = server
	return server, nil
}

func (p *Pool) all(addresses []string) ([]*Server, error) {
	servers := make([]*Server, 0, len(addresses))
	for _, address := range addresses {
		server, err := p.Server(address)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// Fixed returns endpoints that are known in advance, as URLs.
func Fixed(pool *Pool, addresses []string) Endpoints {
	return func(context.Context) ([]*Server, error) { return pool.all(addresses) }
}

// Sliced returns endpoints that are read from the EndpointSlices of a Service
// of the host each time. None at all is an error.
func Sliced(pool *Pool, client kubernetes.Interface, namespace, service string) Endpoints {
	return func(ctx context.Context) ([]*Server, error) {
		slicesOfService, err := slicesOf(ctx, client, namespace, service)
		if err != nil {
			return nil, err
		}
		addresses := Addresses(slicesOfService, ready)
		if len(addresses) == 0 {
			return nil, fmt.Errorf("service %s/%s has no ready endpoint: start its pods, or name the addresses by --host-endpoints and --annex-endpoints", namespace, service)
		}
		return pool.all(addresses)
	}
}

// Leaving returns the endpoints of a Service of the host that are terminating:
// they may take no new connections and still be at work on requests.
func Leaving(pool *Pool, client kubernetes.Interface, namespace, service string) Endpoints {
	return func(ctx context.Context) ([]*Server, error) {
		slicesOfService, err := slicesOf(ctx, client, namespace, service)
		if err != nil {
			return nil, err
		}
		return pool.all(Addresses(slicesOfService, leaving))
	}
}

func slicesOf(ctx context.Context, client kubernetes.Interface, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service,
	})
	if err != nil {
		return nil, fmt.Errorf("reading the EndpointSlices of service %s/%s: %w", namespace, service, err)
	}
	return list.Items, nil
}

// ready says that an endpoint is not known to be unready.
func ready(endpoint *discoveryv1.Endpoint) bool {
	return endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
}

// leaving says that an endpoint is terminating and gets no new requests.
func leaving(endpoint *discoveryv1.Endpoint) bool {
	return !ready(endpoint) && endpoint.Conditions.Terminating != nil && *endpoint.Conditions.Terminating
}

// Addresses returns the URL of every endpoint that is wanted, sorted, each once.
func Addresses(endpointSlices []discoveryv1.EndpointSlice, wanted func(*discoveryv1.Endpoint) bool) []string {
	var addresses []string
	for i := range endpointSlices {
		port, ok := httpsPort(endpointSlices[i].Ports)
		if !ok {
			continue
		}
		for j := range endpointSlices[i].Endpoints {
			endpoint := &endpointSlices[i].Endpoints[j]
			if !wanted(endpoint) {
				continue
			}
			for _, address := range endpoint.Addresses {
				addresses = append(addresses, "https://"+net.JoinHostPort(address, strconv.Itoa(int(port))))
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// httpsPort chooses the port named https, else the only one.
func httpsPort(ports []discoveryv1.EndpointPort) (int32, bool) {
	for _, port := range ports {
		if port.Name != nil && *port.Name == "https" && port.Port != nil {
			return *port.Port, true
		}
	}
	if len(ports) == 1 && ports[0].Port != nil {
		return *ports[0].Port, true
	}
	return 0, false
}

// ServerName is the name by which the serving certificate of config's server is
// verified: the one that is set, else the host of the address.
func ServerName(config *rest.Config) (string, error) {
	if config.ServerName != "" {
		return config.ServerName, nil
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		return "", fmt.Errorf("parsing the address %q: %w", config.Host, err)
	}
	if address.Hostname() == "" {
		return "", errors.New("the address " + strconv.Quote(config.Host) + " is no URL: write https://host:port")
	}
	return address.Hostname(), nil
}
