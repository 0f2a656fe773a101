// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// TestConnectionLog must not run beside tests that log: it looks at klog's output.
func TestConnectionLog(t *testing.T) {
	var written bytes.Buffer
	state := klog.CaptureState()
	defer state.Restore()
	klog.LogToStderr(false)
	klog.SetOutput(&written)

	log := &connectionLog{}
	log.Warning("before")
	log.Errorf("an %s", "error")
	log.show()
	log.Warningf("%s", "after")
	klog.Flush()
	for text, want := range map[string]bool{"before": false, "an error": true, "after": true} {
		if got := strings.Contains(written.String(), text); got != want {
			t.Errorf("%q is written: %t, want %t; all:\n%s", text, got, want, written.String())
		}
	}
}
