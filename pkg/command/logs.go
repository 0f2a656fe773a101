// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	logsjson "k8s.io/component-base/logs/json"
)

// ApplyLogs makes the process log as the flags of a command say, to its error output. Of a command
// that Execute runs, nothing is logged any more after it has failed.
func ApplyLogs(cmd *cobra.Command, logs *logsapi.LoggingConfiguration) error {
	streams := &logsapi.LoggingOptions{ErrorStream: cmd.ErrOrStderr(), InfoStream: cmd.OutOrStdout()}
	if err := logsapi.ValidateAndApplyWithOptions(logs, streams, nil); err != nil {
		return fmt.Errorf("configuring logs: %w: correct --logging-format and the other logging flags", err)
	}
	if out, ok := cmd.ErrOrStderr().(*errorOutput); ok {
		out.setFormat(logs.Format)
	}
	return nil
}

// errorOutput is the error output of a command, and of its log, up to the reason of its failure. What
// a failed start has left running, such as upstream's probes of etcd, logs until the process ends.
type errorOutput struct {
	lock   sync.Mutex
	out    io.Writer
	format string
	ended  bool
}

var _ io.Writer = &errorOutput{}

// Write implements io.Writer. A logger writes one entry at a time; what comes after the reason is dropped.
func (o *errorOutput) Write(p []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.ended {
		return len(p), nil
	}
	return o.out.Write(p)
}

func (o *errorOutput) setFormat(format string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.format = format
}

// end writes the last line: why the program of that name fails. In a log of JSON it is an entry like all others.
func (o *errorOutput) end(name, reason string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.ended = true
	if o.format != logsapi.JSONLogFormat {
		fmt.Fprintf(o.out, "%s: %s\n", name, reason)
		return
	}
	logger, _ := logsjson.NewJSONLogger(0, logsjson.AddNopSync(o.out), nil, nil)
	logger.Error(errors.New(reason), name+" failed")
}
