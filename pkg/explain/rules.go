// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// ruleNotOlderThanFromEtcd is a rule of kube-apiserver before 1.31 alone.
const ruleNotOlderThanFromEtcd annexed.Rule = "NotOlderThanFromEtcd"

// explanation is a rule in plain words. docs/explain.md has the same table.
func explanation(rule annexed.Rule) string {
	switch rule {
	case annexed.RuleLatest:
		return "Without a resourceVersion the answer is the latest state: the cache asks etcd for its revision, waits until it has that, and answers."
	case annexed.RuleLatestFromEtcd:
		return "Without a resourceVersion the answer is the latest state, and etcd gives it because the cache cannot tell whether it has that."
	case annexed.RuleAny:
		return "With resourceVersion 0 any state will do: the cache answers at once with what it has, which may be a little old."
	case annexed.RuleNotOlderThan:
		return "The state must not be older than resourceVersion: the cache waits until it has that, and answers."
	case ruleNotOlderThanFromEtcd:
		return "The state must not be older than resourceVersion, but a cache of this version cannot answer with a limit: etcd does."
	case annexed.RuleExact:
		return "The state is that of exactly this resourceVersion, of which the cache has a snapshot."
	case annexed.RuleExactFromEtcd:
		return "The state is that of exactly this resourceVersion, of which the cache has no snapshot: etcd answers."
	case annexed.RuleContinue:
		return "A further page is of the state that the pages before it are of; the cache has a snapshot of it."
	case annexed.RuleContinueFromEtcd:
		return "A further page is of the state that the pages before it are of; the cache has no snapshot of it: etcd answers."
	case annexed.RuleNotReady:
		return "The cache is being filled: until it is, etcd answers."
	case annexed.RuleNoCache:
		return "The server has no watch cache for this resource: etcd answers every read."
	case annexed.RuleGetLatest:
		return "A GET of one object without a resourceVersion goes to etcd."
	case annexed.RuleNotStarted:
		return "Nobody has needed the cache of this version yet: the first list starts it, waits until it is filled, and is answered by it."
	case annexed.RuleWatchFromEtcd:
		return "The watch begins at a state from before the cache was filled for the first time: etcd answers it."
	case annexed.RuleWatch:
		return "The cache serves watches, and the objects with which this one begins."
	default:
		return ""
	}
}
