// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// Flags are --wait and --timeout.
type Flags struct {
	// Wait says that the command ends when annex is done.
	Wait bool
	// Timeout is how long to wait at most, 0 without end.
	Timeout time.Duration
}

// AddFlags registers the flags. The end of what is waited for completes the help text.
func (f *Flags) AddFlags(cmd *cobra.Command, end string) {
	cmd.Flags().BoolVar(&f.Wait, "wait", f.Wait, "Show the progress and return when "+end+", or fail with the reason why that cannot be.")
	cmd.Flags().DurationVar(&f.Timeout, "timeout", f.Timeout, "How long --wait waits at most, such as 10m. 0 waits without end. Annex goes on in any case.")
}

// Validate refuses what makes no sense.
func (f *Flags) Validate() error {
	switch {
	case f.Timeout < 0:
		return errors.New("--timeout must not be negative")
	case f.Timeout > 0 && !f.Wait:
		return errors.New("--timeout limits --wait: add --wait")
	}
	return nil
}
