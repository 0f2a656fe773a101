// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"io"
)

const (
	// firstNetwork is the second number of the addresses of the first range of ports.
	firstNetwork = 64
	// podsPerNetwork is how many addresses PodIP has.
	podsPerNetwork = 250 * 128
)

// Network is the part of 127.0.0.0/8 that belongs to one Env. On Linux every
// address of it reaches this machine without any setup, so pods and Services can
// have addresses of their own while nothing is reachable from outside.
type Network struct {
	number int
}

// Network returns the addresses of the environment. No two environments of this
// machine have the same ones.
func (e *Env) Network() Network {
	return Network{number: firstNetwork + e.ports.Number()}
}

// ServiceCIDR is the value for --service-cluster-ip-range.
func (n Network) ServiceCIDR() string { return fmt.Sprintf("127.%d.0.0/17", n.number) }

// KubernetesIP is the address that kube-apiserver gives to the Service default/kubernetes.
func (n Network) KubernetesIP() string { return fmt.Sprintf("127.%d.0.1", n.number) }

// PodIP is the address of the pod with the given number, counted from 0; the
// numbers start again after some ten thousand pods.
func (n Network) PodIP(pod int) string {
	pod %= podsPerNetwork
	return fmt.Sprintf("127.%d.%d.%d", n.number, 128+pod/250, 1+pod%250)
}

// Mkdir creates a folder below the folder of the environment, which it goes with.
func (e *Env) Mkdir(name string) (string, error) { return e.mkdir(name) }

// CloseWith makes the end of the environment also close c, before its processes are killed.
func (e *Env) CloseWith(c io.Closer) { e.closeWith(c) }
