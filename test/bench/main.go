// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench compares annex with kube-apiserver. It starts every process itself,
// ends every process itself, and fails when any answer is wrong.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubeannex/annex/test/bench/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := app.Main(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}
