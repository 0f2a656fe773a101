// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"testing"

	"k8s.io/apiserver/pkg/storage"
)

// TestRuleOfTokens names the rule of further pages by what their tokens say.
func TestRuleOfTokens(t *testing.T) {
	token := func(revision int64) string {
		token, err := storage.EncodeContinue("/pods/a/b", "/pods/", revision)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for name, tc := range map[string]struct {
		token               string
		fromCache, fromEtcd Rule
	}{
		"a revision":          {token(7), RuleContinue, RuleContinueFromEtcd},
		"no revision":         {token(-1), RuleLatest, RuleLatestFromEtcd},
		"what cannot be read": {"x", RuleContinue, RuleContinueFromEtcd},
	} {
		t.Run(name, func(t *testing.T) {
			opts := everything()
			opts.Predicate.Continue = tc.token
			for source, want := range map[Source]Rule{SourceCache: tc.fromCache, SourceEtcd: tc.fromEtcd} {
				if got := ruleOf(opts, source); got != want {
					t.Errorf("from %s: %s, want %s", source, got, want)
				}
			}
		})
	}
}
