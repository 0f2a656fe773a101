// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"os"
	"path/filepath"
)

// WriteAuditPolicy writes an audit policy that takes every request, without bodies, into a directory.
func WriteAuditPolicy(dir string) (file string, err error) {
	file = filepath.Join(dir, "policy.yaml")
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return "", fmt.Errorf("writing an audit policy: %w", err)
	}
	return file, nil
}
