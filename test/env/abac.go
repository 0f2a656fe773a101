// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// ABACRule is one rule of an ABAC policy (https://kubernetes.io/docs/reference/access-authn-authz/abac/).
type ABACRule struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
}

// WriteABACPolicy writes a policy for a host whose AuthorizationMode is ABAC into a
// directory: annex gets the rights that it needs, every known user discovery, and the
// rules are added. The file goes to --authorization-policy-file.
func WriteABACPolicy(dir string, rules ...ABACRule) (file string, err error) {
	rules = append([]ABACRule{
		{User: annexUser, Namespace: "*", APIGroup: "*", Resource: "*", Readonly: true},
		{User: annexUser, Namespace: "*", APIGroup: "authentication.k8s.io", Resource: "tokenreviews"},
		{User: annexUser, Namespace: "*", APIGroup: "authorization.k8s.io", Resource: "subjectaccessreviews"},
		{User: annexUser, Namespace: "*", Resource: "resourcequotas"},
		{Group: "system:authenticated", NonResourcePath: "*", Readonly: true},
	}, rules...)
	var policy bytes.Buffer
	for _, rule := range rules {
		line, err := json.Marshal(map[string]any{
			"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": rule,
		})
		if err != nil {
			return "", fmt.Errorf("encoding a rule of an ABAC policy: %w", err)
		}
		policy.Write(append(line, '\n'))
	}
	file = filepath.Join(dir, "abac.jsonl")
	return file, writeFile(file, policy.Bytes())
}
