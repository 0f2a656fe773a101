// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		args      string
		want      cluster.Sizes
		wantError string
	}{
		"default": {
			want: cluster.Sizes{
				Shape:     dataset.Shape{Seed: 1, Nodes: 4000, Namespaces: 50},
				Endpoints: 100_000, Reports: 2000, Flows: 500,
			},
		},
		"smoke": {
			args: "--smoke",
			want: cluster.Sizes{
				Shape:     dataset.Shape{Seed: 1, Nodes: 800, Namespaces: 50},
				Endpoints: 20_000, Reports: 200, Flows: 50,
			},
		},
		"smoke with own sizes": {
			args: "--smoke --objects=500 --nodes=7 --namespaces=3 --seed=9",
			want: cluster.Sizes{
				Shape:     dataset.Shape{Seed: 9, Nodes: 7, Namespaces: 3},
				Endpoints: 500, Reports: 200, Flows: 50,
			},
		},
		"no objects":               {args: "--reports=0", wantError: "--reports must be at least 1"},
		"no regular expression":    {args: "--scenarios=(", wantError: "--scenarios: "},
		"a flag that nobody knows": {args: "--fast", wantError: "unknown flag: --fast"},
	} {
		t.Run(name, func(t *testing.T) {
			options, err := Parse(strings.Fields(tc.args), io.Discard)
			if tc.wantError != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.wantError) {
					t.Fatalf("Parse() gives the error %v, wanted is %q", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, options.sizes()); diff != "" {
				t.Errorf("sizes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelected(t *testing.T) {
	options, err := Parse([]string{"--scenarios=^list-|crud"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range options.selected() {
		got = append(got, s.Name())
	}
	if diff := cmp.Diff([]string{"list-selective", "list-full", "crud", "list-large"}, got); diff != "" {
		t.Errorf("selected scenarios differ (-want +got):\n%s", diff)
	}
}

func TestProfiles(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"without --profile": {args: "--output=out"},
		"with --profile":    {args: "--profile --output=out", want: "out/profiles"},
	} {
		t.Run(name, func(t *testing.T) {
			options, err := Parse(strings.Fields(tc.args), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if got := options.profiles(); got != tc.want {
				t.Errorf("the folder for profiles is %q, wanted is %q", got, tc.want)
			}
		})
	}
}
