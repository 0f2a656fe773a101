// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// documentedUser and runbookUser are who the controller is on the page and here.
	documentedUser = "system:serviceaccount:annex-system:annex-controller"
	runbookUser    = "annex-controller"
	// takingOver is what the policy of the page forbids: a built-in group, and another server than annex.
	takingOver  = `kubectl patch apiservice v1.apps --as=` + runbookUser + ` --dry-run=server --type=merge --patch='{"spec":{"service":{"namespace":"annex-system","name":"annex"}}}'`
	sentAway    = `kubectl patch apiservice v1alpha1.` + runbookGroup + ` --as=` + runbookUser + ` --dry-run=server --type=merge --patch='{"spec":{"service":{"namespace":"default","name":"other"}}}'`
	policyDelay = 200 * time.Millisecond
)

// boundController applies the policy of docs/security.md and tries it. Every move
// of the runbook then has to go well under it.
func (r *runbook) boundController(ctx context.Context) error {
	page, err := os.ReadFile(filepath.Join(r.root, "docs", "security.md"))
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	policy, _, closed := strings.Cut(rest, "\n```")
	if !found || !closed || !strings.Contains(policy, documentedUser) {
		return errors.New("docs/security.md shows no policy for the controller")
	}
	file := filepath.Join(filepath.Dir(r.kubeconfig), "policy.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(policy, documentedUser, runbookUser)), 0o600); err != nil {
		return err
	}
	if err := r.shell(ctx, "kubectl apply --filename="+file); err != nil {
		return err
	}
	for command, answer := range map[string]string{takingOver: "groups of custom resources only", sentAway: "to annex only"} {
		if err := r.refused(ctx, command, answer); err != nil {
			return err
		}
	}
	return nil
}

// refused runs a command until it is refused: kube-apiserver obeys a policy about a second after its creation.
func (r *runbook) refused(ctx context.Context, command, answer string) error {
	ticker := time.NewTicker(policyDelay)
	defer ticker.Stop()
	for {
		err := r.shell(ctx, command)
		if err != nil && strings.Contains(err.Error(), answer) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%q is not refused with %q: %w", command, answer, err)
		case <-ticker.C:
		}
	}
}
