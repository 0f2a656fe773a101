// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kubeannex/annex/test/env"
)

// serveLogs starts the part of kubelet's API that "kubectl logs" and Helm use,
// and returns its port.
func (n *Node) serveLogs(ctx context.Context) (int32, error) {
	ca, err := env.NewCA("annex-test-kubelet-ca")
	if err != nil {
		return 0, err
	}
	serving, err := ca.Serving()
	if err != nil {
		return 0, err
	}
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		return 0, fmt.Errorf("reading the certificate of the node: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(nodeIP, "0"))
	if err != nil {
		return 0, fmt.Errorf("serving logs: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.logs)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
	}}
	n.workers.Go(func() {
		_ = server.ServeTLS(listener, "", "") // ends with the node
	})
	context.AfterFunc(ctx, func() {
		_ = server.Close() // cuts what is left
	})
	port := listener.Addr().(*net.TCPAddr).Port
	return int32(port), nil
}

// logs answers with what a container has printed so far. It does not follow.
func (n *Node) logs(w http.ResponseWriter, r *http.Request) {
	content, err := os.ReadFile(filepath.Join(n.dirs.logs, logName(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))))
	if err != nil {
		http.Error(w, "the container has no log yet", http.StatusNotFound)
		return
	}
	if tail, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		lines := bytes.SplitAfter(content, []byte("\n"))
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		content = bytes.Join(lines[max(0, len(lines)-tail):], nil)
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(content) // the client may have gone
}

// logName is the name of the file with what a container prints.
func logName(namespace, pod, container string) string {
	return fmt.Sprintf("%s_%s_%s.log", namespace, pod, container)
}
