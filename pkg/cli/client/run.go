// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/spf13/cobra"
)

// Steps are what a command does with its arguments, in this order.
type Steps interface {
	// Complete takes over the arguments.
	Complete(args []string)
	// Validate refuses what makes no sense, before anything is asked of a server.
	Validate() error
	// Run does the work.
	Run(ctx context.Context) error
}

// RunE is the RunE of a cobra command that goes through steps.
func RunE(steps Steps) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		steps.Complete(args)
		if err := steps.Validate(); err != nil {
			return err
		}
		return steps.Run(cmd.Context())
	}
}
