// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package golden compares what a test has made with a file of its testdata.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Compare fails the test when got is not what testdata/name holds. With
// UPDATE_GOLDEN=1 in the environment the file is written first.
func Compare(tb testing.TB, name, got string) {
	tb.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatalf("%v: run the test with UPDATE_GOLDEN=1 and look at what it writes", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("the output differs from %s, UPDATE_GOLDEN=1 rewrites it (-want +got):\n%s", file, diff)
	}
}
