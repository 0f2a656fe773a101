// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the format json
	"k8s.io/klog/v2"
)

// TestReasonIsTheLastLine has commands log before they fail and, as what they have left running does, after that.
func TestReasonIsTheLastLine(t *testing.T) {
	cases := map[string]struct {
		// parent makes it a command below another one, with the same error output.
		parent   bool
		format   string
		err      error
		want     []string
		wantCode int
	}{
		"success, in text": {format: "text", want: []string{"I early", "I late", "E late", "I late"}},
		"success, in JSON": {format: "json", want: []string{"early", "late", "late", "late"}},
		"a failure, in text": {
			format: "text", err: errors.New("broken: mend it"), want: []string{"I early", "server: broken: mend it"}, wantCode: 1,
		},
		"a failure, in JSON": {
			format: "json", err: errors.New("broken\non two lines: mend it"), want: []string{"early", "server failed: broken on two lines: mend it"}, wantCode: 1,
		},
		"a failure of a command below, in JSON": {
			parent: true, format: "json", err: errors.New("broken: mend it"), want: []string{"early", "server failed: broken: mend it"}, wantCode: 1,
		},
		"a format that does not exist": {
			format: "xml", wantCode: 1,
			want: []string{`server: configuring logs: format: Invalid value: "xml": Unsupported log format: correct --logging-format and the other logging flags`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() {
				if err := logsapi.ResetForTest(nil); err != nil {
					t.Error(err)
				}
			})
			cmd := &cobra.Command{Use: "server", SilenceUsage: true}
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				logs := logsapi.NewLoggingConfiguration()
				logs.Format = tc.format
				if err := ApplyLogs(cmd, logs); err != nil {
					return err
				}
				klog.Background().Info("early")
				return tc.err
			}
			cmd.SetArgs(nil)
			if tc.parent {
				cmd.Use = "below"
				below := cmd
				cmd = &cobra.Command{Use: "server", SilenceUsage: true}
				cmd.AddCommand(below)
				cmd.SetArgs([]string{"below"})
			}
			var errOut bytes.Buffer
			if code := Execute(cmd, &errOut); code != tc.wantCode {
				t.Errorf("exit code %d, want %d", code, tc.wantCode)
			}
			if tc.format != "xml" { // otherwise the log is nobody's
				klog.Background().Info("late")
				klog.Error("late")
				log.Print("late")
			}
			if diff := cmp.Diff(tc.want, messages(t, tc.format, errOut.String())); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// messages are the lines of an output without time, process and place: in text with the letter of the
// severity, in JSON with the text of the error, if there is one.
func messages(t *testing.T, format, output string) []string {
	t.Helper()
	var messages []string
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		if format == logsapi.JSONLogFormat {
			messages = append(messages, jsonMessage(t, line))
			continue
		}
		if _, message, isEntry := strings.Cut(line, "] "); isEntry {
			line = line[:1] + " " + strings.Trim(message, `"`)
		}
		messages = append(messages, line)
	}
	return messages
}

func jsonMessage(t *testing.T, line string) string {
	t.Helper()
	entry := struct {
		Time    float64 `json:"ts"`
		Message string  `json:"msg"`
		Err     string  `json:"err"`
	}{}
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == 0 {
		t.Errorf("no entry of a log: %v: %s", err, line)
	}
	if entry.Err != "" {
		return entry.Message + ": " + entry.Err
	}
	return entry.Message
}
