// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"strings"
	"testing"
)

func TestDecodeModules(t *testing.T) {
	sums := map[string]string{"example.test/a": "h1:a"}
	cases := map[string]struct {
		stdout    string
		wantError string
	}{
		"the pinned module": {
			stdout: `{"Path": "example.test/a", "Dir": "/cache/a", "Sum": "h1:a"}`,
		},
		"a module with another content": {
			stdout:    `{"Path": "example.test/a", "Dir": "/cache/a", "Sum": "h1:b"}`,
			wantError: "modules.txt pins h1:a",
		},
		"a module that is not served": {
			stdout:    `{"Path": "example.test/a", "Error": "not found"}`,
			wantError: "not found",
		},
		"a module that is missing": {
			wantError: "got 0 of 1 modules",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			folders, err := decodeModules([]byte(tc.stdout), sums)
			if tc.wantError == "" {
				if err != nil || folders["example.test/a"] != "/cache/a" {
					t.Errorf("got %v, %v", folders, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("got error %v, want %q", err, tc.wantError)
			}
		})
	}
}

func TestFetchRefusesAnUnknownModule(t *testing.T) {
	_, err := Fetch(t.Context(), t.TempDir(), "example.test/unknown")
	if err == nil || !strings.Contains(err.Error(), "modules.txt does not pin example.test/unknown") {
		t.Errorf("got error %v", err)
	}
}

func TestFetchTheNamedModuleOnly(t *testing.T) {
	const path = "sigs.k8s.io/karpenter"
	folders, err := Fetch(t.Context(), t.TempDir(), path)
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) != 1 || folders[path] == "" {
		t.Errorf("got %v, want the folder of %s", folders, path)
	}
}
