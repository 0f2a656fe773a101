// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pod is what the pods of the tests of a node run.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	address := flag.String("listen", "", "serve HTTP at this address until SIGTERM")
	appendTo := flag.String("append", "", "append a line to this file first")
	message := flag.String("message", "", "leave this as last words")
	code := flag.Int("exit", 0, "exit code")
	flag.Parse()
	if *appendTo != "" {
		check(appendLine(*appendTo))
	}
	if *address != "" {
		check(serve(*address))
	}
	if *message != "" {
		check(os.WriteFile("/dev/termination-log", []byte(*message), 0o600))
	}
	os.Exit(*code)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(100)
	}
}

func appendLine(path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(file, os.Getenv("HOSTNAME")); err != nil {
		return err
	}
	return file.Close()
}

func serve(address string) error {
	var sick atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/healthy", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/sicken", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	mux.HandleFunc("/print", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(r.URL.Query().Get("text")) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "ARGS=%s\nUID=%d\nGID=%d\n", strings.Join(os.Args, " "), os.Getuid(), os.Getgid())
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile(r.URL.Query().Get("path"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = w.Write(content) // the client may have gone
	})
	mux.HandleFunc("/resolve", func(w http.ResponseWriter, r *http.Request) {
		addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.URL.Query().Get("name"))
		fmt.Fprintln(w, addresses, err)
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		fmt.Println("SIGTERM")
		return server.Shutdown(context.Background())
	}
}
