// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"
	"time"

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

// TestTotalBeforeTheFirstFill asks for what nobody knows yet: a cache that cannot be filled has no objects, but etcd has.
func TestTotalBeforeTheFirstFill(t *testing.T) {
	w := newStack(t, cached, stackOptions{lazy: true})
	if _, err := w.client.KV.Put(t.Context(), w.prefix+podPrefix+"z/z", "broken"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = w.GetList(ctx, podPrefix, everyPod(), newPodList()) // it starts the cache and fails
	explaining, recorder := WithExplanation(t.Context())
	_ = w.GetList(explaining, podPrefix, at(everyPod(), "", "", 2), newPodList())
	if got, _ := recorder.Reading(); got.Total >= 0 {
		t.Errorf("%d objects are told of a cache that was never filled, want that it is not known", got.Total)
	}
}
