// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/env/ports"
)

// etcdMember is the name of the only member of each etcd.
const etcdMember = "default"

// EtcdOptions says how to start an etcd server.
type EtcdOptions struct {
	// Name tells the servers of one environment apart. Default "etcd".
	Name string
	// TLS makes the server demand client certificates. Without it anybody on this
	// machine may use the server, which is fine for a test.
	TLS bool
	// RevisionFloor is the revision at which the database begins; 0 is etcd's own
	// beginning. An annex needs one far above any host's (2^50).
	RevisionFloor int64
	// Args are added to the arguments; a repeated flag overrides ours.
	Args []string
}

// Etcd is one etcd server. Its data and address survive Kill and Restart.
type Etcd struct {
	*Process

	// URL is the client address.
	URL string
	// DataDir holds the database.
	DataDir string
	// CAFile, CertFile and KeyFile are what a client needs with TLS; else empty.
	CAFile, CertFile, KeyFile string
}

// StartEtcd starts an etcd server with default durability and waits until it serves.
func (e *Env) StartEtcd(ctx context.Context, options EtcdOptions) (*Etcd, error) {
	if options.Name == "" {
		options.Name = "etcd"
	}
	dir, err := e.mkdir(options.Name)
	if err != nil {
		return nil, err
	}
	etcd := &Etcd{DataDir: filepath.Join(dir, "data")}
	peerPort, err := e.ports.Take()
	if err != nil {
		return nil, err
	}
	peer := "http://" + ports.Address(peerPort)
	if options.RevisionFloor != 0 {
		member := embedded.Member{Name: etcdMember, PeerURLs: []string{peer}}
		if err := embedded.Seed(ctx, etcd.DataDir, options.RevisionFloor, member); err != nil {
			return nil, err
		}
	}
	command, err := e.etcdCommand(etcd, dir, peer, options)
	if err != nil {
		return nil, err
	}
	if etcd.Process, err = e.StartProcess(command); err != nil {
		return nil, err
	}
	return etcd, etcd.WaitReady(ctx)
}

func (e *Env) etcdCommand(etcd *Etcd, dir, peer string, options EtcdOptions) (Command, error) {
	program, err := e.Program(programEtcd)
	if err != nil {
		return Command{}, err
	}
	clientPort, err := e.ports.Take()
	if err != nil {
		return Command{}, err
	}
	etcd.URL = "http://" + ports.Address(clientPort)
	config := &rest.Config{}
	var tls []string
	if options.TLS {
		etcd.URL = "https://" + ports.Address(clientPort)
		if tls, config, err = etcd.makeTLS(dir); err != nil {
			return Command{}, err
		}
	}
	config.Host = etcd.URL
	probe, err := ready(config, "/readyz")
	if err != nil {
		return Command{}, err
	}
	args := []string{
		"--name=" + etcdMember,
		"--data-dir=" + etcd.DataDir,
		"--listen-client-urls=" + etcd.URL,
		"--advertise-client-urls=" + etcd.URL,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + etcdMember + "=" + peer,
	}
	args = append(append(args, tls...), options.Args...)
	return Command{Name: options.Name, Path: program, Args: args, Ready: probe}, nil
}

// makeTLS writes the certificates of the server and of its clients and returns
// the server's flags and a client configuration.
func (s *Etcd) makeTLS(dir string) ([]string, *rest.Config, error) {
	ca, err := NewCA("annex-test-etcd-ca")
	if err != nil {
		return nil, nil, err
	}
	s.CAFile = filepath.Join(dir, "ca.crt")
	if err := writeFile(s.CAFile, ca.PEM()); err != nil {
		return nil, nil, err
	}
	serving, err := ca.Serving()
	if err != nil {
		return nil, nil, err
	}
	certFile, keyFile, err := serving.write(dir, "serving")
	if err != nil {
		return nil, nil, err
	}
	client, err := ca.Client("etcd-client")
	if err != nil {
		return nil, nil, err
	}
	if s.CertFile, s.KeyFile, err = client.write(dir, "client"); err != nil {
		return nil, nil, err
	}
	flags := []string{
		"--cert-file=" + certFile, "--key-file=" + keyFile,
		"--trusted-ca-file=" + s.CAFile, "--client-cert-auth",
	}
	return flags, clientConfig(s.URL, ca.PEM(), client), nil
}

// clientFlags are the flags by which an API server reaches this etcd.
func (s *Etcd) clientFlags() []string {
	flags := []string{"--etcd-servers=" + s.URL}
	if s.CAFile != "" {
		flags = append(flags, "--etcd-cafile="+s.CAFile, "--etcd-certfile="+s.CertFile, "--etcd-keyfile="+s.KeyFile)
	}
	return flags
}
