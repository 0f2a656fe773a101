// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
)

func TestExecute(t *testing.T) {
	list := utilerrors.NewAggregate([]error{errors.New("first\nline"), utilerrors.NewAggregate([]error{errors.New("second")})})
	cases := map[string]struct {
		args     []string
		err      error
		want     string
		wantCode int
	}{
		"success":                    {},
		"one error":                  {err: errors.New("broken: mend it"), want: "server: broken: mend it\n", wantCode: 1},
		"several errors":             {err: list, want: "server: first line; second\n", wantCode: 1},
		"several errors inside one":  {err: fmt.Errorf("setting it: %w: correct --it", list), want: "server: setting it: [first line, second]: correct --it\n", wantCode: 1},
		"an unknown flag":            {args: []string{"--bogus"}, want: "server: unknown flag: --bogus: see server --help\n", wantCode: 1},
		"a flag that is not parsed":  {args: []string{"--on=maybe"}, want: "server: invalid argument \"maybe\" for \"--on\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax: see server --help\n", wantCode: 1},
		"an argument":                {args: []string{"serve"}, want: "server: unknown command \"serve\" for \"server\": see server --help\n", wantCode: 1},
		"an argument after the dash": {args: []string{"--", "serve"}, want: "server: unknown command \"serve\" for \"server\": see server --help\n", wantCode: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := &cobra.Command{
				Use: "server", Args: NoArgs, SilenceUsage: true, SilenceErrors: true,
				RunE: func(*cobra.Command, []string) error { return tc.err },
			}
			var sections cliflag.NamedFlagSets
			sections.FlagSet("server").Bool("on", false, "")
			AddFlags(cmd, sections)
			cmd.SetArgs(append([]string{}, tc.args...))
			var errOut bytes.Buffer
			if code := Execute(cmd, &errOut); code != tc.wantCode {
				t.Errorf("exit code %d, want %d", code, tc.wantCode)
			}
			if diff := cmp.Diff(tc.want, errOut.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}
