// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo moves two busy API groups of a real cluster into annex and one of
// them back, in front of a client that never stops watching. It starts every
// process itself, ends every process itself, and fails when anything is not as
// the documentation promises.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}
