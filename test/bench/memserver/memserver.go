// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memserver is what no API server can be faster than: a Go server that
// answers with bytes that it has in memory, over TLS and HTTP/2 as API servers do.
// It is a process of its own, so that its CPU time is not that of the benchmark.
package memserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// Command is the first argument with which the benchmark becomes this server.
const Command = "serve-memory"

const (
	// readyPath answers once the files are in memory.
	readyPath = "/readyz"
	// headerTimeout bounds how long a client may take for its header.
	headerTimeout = 10 * time.Second
	// stopTimeout bounds the end.
	stopTimeout = 5 * time.Second

	certFile, keyFile = "tls.crt", "tls.key"
	answerFile        = "list.json"
)

// Run serves the answer in a folder at an address until ctx is done.
func Run(ctx context.Context, dir, address string) error {
	answer, err := os.ReadFile(filepath.Join(dir, answerFile))
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: headerTimeout, Handler: handler(answer),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
	}
	failed := make(chan error, 1)
	go func() {
		failed <- server.ListenAndServeTLS(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serving from memory: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(server.Shutdown(stopping), server.Close())
}

func handler(answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == readyPath {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// A client that went away is its own loss.
		_, _ = w.Write(answer)
	})
}

// Server is a running process.
type Server struct {
	*env.Process

	// Config is that of a client.
	Config *rest.Config

	dir string
}

// Start runs this program again as a server of the given answer, which the caller
// may change afterwards. The caller calls Close.
func Start(ctx context.Context, e *env.Env, answer []byte) (*Server, error) {
	dir, err := os.MkdirTemp("", "annex-bench-memory-")
	if err != nil {
		return nil, fmt.Errorf("creating a folder: %w", err)
	}
	server := &Server{dir: dir}
	if err := server.start(ctx, e, answer); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

func (s *Server) start(ctx context.Context, e *env.Env, answer []byte) error {
	ca, err := env.NewCA("annex-bench")
	if err != nil {
		return err
	}
	serving, err := ca.Serving()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		certFile: serving.Cert, keyFile: serving.Key, answerFile: answer,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	s.Config = &rest.Config{Host: "https://" + address, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM()}}
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	s.Process, err = e.StartProcess(env.Command{
		Name: Command, Path: program, Args: []string{Command, s.dir, address},
		Ready: func(ctx context.Context) error { return probe(ctx, client, s.Config.Host+readyPath) },
	})
	if err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// freeAddress returns an address of the loopback interface that was free a moment ago.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

func probe(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the server from memory answers %s", response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// Close ends the process and removes its files.
func (s *Server) Close() error {
	var err error
	if s.Process != nil {
		err = s.Kill()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
