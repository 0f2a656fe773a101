// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

func TestAdvice(t *testing.T) {
	const all = "/apis/x.io/v1/things"
	definition := Definition{Namespaced: true, Fields: []string{"spec.node"}, Indexes: annexed.Indexes{Labels: []string{"team"}}}
	cached := func(rule annexed.Rule, scanned, returned int64) annexed.Reading {
		return annexed.Reading{Source: annexed.SourceCache, Rule: rule, Total: 10_000, Scanned: scanned, Returned: returned}
	}
	etcd := func(rule annexed.Rule) annexed.Reading {
		return annexed.Reading{Source: annexed.SourceEtcd, Rule: rule, Total: 10_000, Scanned: 10_000, Returned: -1}
	}
	custom, old := &hostKind{rules: rulesOf(34)}, &hostKind{rules: rulesOf(30)}
	bare := &Definition{Namespaced: true}
	unknown := annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Total: -1, Scanned: -1, Returned: -1}
	for name, tc := range map[string]struct {
		path    string
		reading annexed.Reading
		host    *hostKind
		// kind is that of things, unless it is another.
		kind *Definition
		want string
	}{
		"everything":                      {path: all, reading: cached(annexed.RuleLatest, 10_000, 10_000), want: "UseInformer Paginate AskForNamespace"},
		"everything in a namespace":       {path: "/apis/x.io/v1/namespaces/a/things", reading: cached(annexed.RuleLatest, 10_000, 10_000), want: "UseInformer Paginate"},
		"everything of any age":           {path: all + "?resourceVersion=0", reading: cached(annexed.RuleAny, 10_000, 10_000), want: "UseInformer AskForNamespace"},
		"a page":                          {path: all + "?limit=500", reading: cached(annexed.RuleLatest, 500, 500)},
		"a small kind":                    {path: all, reading: cached(annexed.RuleLatest, 300, 300)},
		"a label without an index":        {path: all + "?labelSelector=app%3Dx", reading: cached(annexed.RuleLatest, 10_000, 25), want: "IndexLabel UseCache"},
		"one that is unknown to match":    {path: all + "?labelSelector=app%3Dx", reading: cached(annexed.RuleAny, 10_000, -1), want: "IndexLabel"},
		"a label in a namespace":          {path: "/apis/x.io/v1/namespaces/a/things?labelSelector=app%3Dx", reading: cached(annexed.RuleLatest, 6_000, 25), kind: bare, want: "IndexLabel UseCache"},
		"a label in a small namespace":    {path: "/apis/x.io/v1/namespaces/a/things?labelSelector=app%3Dx", reading: cached(annexed.RuleLatest, 400, 2), kind: bare},
		"a namespace of a bare kind":      {path: "/apis/x.io/v1/namespaces/a/things", reading: cached(annexed.RuleLatest, 6_000, 6_000), kind: bare, want: "UseInformer Paginate"},
		"a label that most have":          {path: all + "?labelSelector=app%3Dx&resourceVersion=0", reading: cached(annexed.RuleAny, 10_000, 9_000)},
		"a label with an index":           {path: all + "?labelSelector=team%3Dx", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: "l:team", Total: 10_000, Scanned: 25, Returned: 25}},
		"the second label would do":       {path: all + "?labelSelector=team%3Dx,app%3Dy&resourceVersion=0", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Index: "l:team", Total: 10_000, Scanned: 5_000, Returned: 3}, want: "IndexLabel"},
		"a field past the eighth":         {path: all + "?fieldSelector=spec.node%3Dx&resourceVersion=0", reading: cached(annexed.RuleAny, 10_000, 25), want: "IndexField"},
		"a field with an index":           {path: all + "?fieldSelector=spec.node%3Dx", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: "f:spec.node", Total: 10_000, Scanned: 25, Returned: 25}},
		"all but one value":               {path: all + "?fieldSelector=spec.node!%3Dx&resourceVersion=0", reading: cached(annexed.RuleAny, 10_000, 25), want: "SelectExactly"},
		"several values":                  {path: all + "?labelSelector=app+in+(a,b)&resourceVersion=0", reading: cached(annexed.RuleAny, 10_000, 25), want: "SelectExactly"},
		"a namespace by its field":        {path: all + "?fieldSelector=metadata.namespace%3Da&resourceVersion=0", reading: cached(annexed.RuleAny, 10_000, 25), want: "AskForNamespace"},
		"one object":                      {path: "/apis/x.io/v1/namespaces/a/things?fieldSelector=metadata.name%3Db", reading: annexed.Reading{Source: annexed.SourceEtcd, Rule: annexed.RuleLatestFromEtcd, Total: 10_000, Scanned: -1, Returned: -1}},
		"a limit that is ignored":         {path: all + "?resourceVersion=0&limit=500", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, LimitIgnored: true, Total: 10_000, Scanned: 10_000, Returned: 10_000}, want: "LimitIgnored AskForNamespace"},
		"a limit that does not matter":    {path: all + "?resourceVersion=0&limit=500", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, LimitIgnored: true, Total: 10, Scanned: 10, Returned: 10}},
		"latest from etcd":                {path: all + "?labelSelector=team%3Dx", reading: etcd(annexed.RuleLatestFromEtcd), want: "UseCache"},
		"a page of the latest from etcd":  {path: all + "?limit=5", reading: etcd(annexed.RuleLatestFromEtcd), want: "UseCache AskForNamespace"},
		"an old version":                  {path: all + "?resourceVersion=7&resourceVersionMatch=Exact", reading: etcd(annexed.RuleExactFromEtcd), want: "NewerVersion"},
		"an old version without a match":  {path: all + "?resourceVersion=7&limit=5", reading: etcd(annexed.RuleExactFromEtcd), want: "NotOlderThan AskForNamespace"},
		"a version that the cache has":    {path: all + "?resourceVersion=7&resourceVersionMatch=Exact", reading: cached(annexed.RuleExact, 300, 300)},
		"an old page":                     {path: all + "?continue=abc&limit=5", reading: etcd(annexed.RuleContinueFromEtcd), want: "StartAgain"},
		"a page of a host without memory": {path: all + "?continue=abc&limit=5", reading: etcd(annexed.RuleContinueFromEtcd), host: old},
		"a watch of few":                  {path: all + "?watch=true&sendInitialEvents=true&labelSelector=app%3Dx", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleWatch, Total: 10_000}},
		"a selector of unknown cost":      {path: all + "?labelSelector=app%3Dx", reading: unknown},
		"everything of unknown cost":      {path: all, reading: unknown},
		"a namespace of unknown cost":     {path: all + "?fieldSelector=metadata.namespace%3Da,spec.node!%3Dx", reading: unknown},
		"etcd at an unknown cost":         {path: all, reading: annexed.Reading{Source: annexed.SourceEtcd, Rule: annexed.RuleLatestFromEtcd, Total: -1, Scanned: -1, Returned: -1}},
		"an ignored limit, unknown cost":  {path: all + "?resourceVersion=0&limit=500", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, LimitIgnored: true, Total: -1, Scanned: -1, Returned: -1}, want: "LimitIgnored"},
		"a watch of unknown cost":         {path: all + "?watch=true&sendInitialEvents=true&fieldSelector=metadata.namespace%3Da", reading: annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleWatch, Total: -1}},
		"a label of a custom host kind":   {path: all + "?labelSelector=app%3Dx", reading: unknown, host: custom, want: "AdoptGroup UseCache"},
		"a label of a built-in kind":      {path: "/api/v1/pods?labelSelector=app%3Dx", reading: unknown, host: &hostKind{rules: rulesOf(34), builtIn: true}, want: "UseCache"},
		"a field of a custom host kind":   {path: all + "?fieldSelector=spec.node%3Dx", reading: unknown, host: custom, want: "FieldNotSelectable UseCache"},
		"a field of a built-in kind":      {path: "/api/v1/pods?fieldSelector=spec.node%3Dx", reading: unknown, host: &hostKind{rules: rulesOf(34), builtIn: true}, want: "UseCache"},
		"a page since, of an old host":    {path: all + "?limit=5&resourceVersion=7&resourceVersionMatch=NotOlderThan", reading: annexed.Reading{Source: annexed.SourceEtcd, Rule: ruleNotOlderThanFromEtcd, Total: -1, Scanned: -1, Returned: -1}, host: old, want: "UseCache AskForNamespace"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := ParsePath(tc.path)
			if err != nil {
				t.Fatal(err)
			}
			options, err := request.decode()
			if err != nil {
				t.Fatal(err)
			}
			definition := definition
			if tc.kind != nil {
				definition = *tc.kind
			}
			var got []string
			for _, advice := range advise(situation{request: request, options: options, reading: tc.reading, definition: definition, host: tc.host}) {
				got = append(got, advice.Reason)
				if !strings.HasSuffix(advice.Message, ".") && !strings.HasSuffix(advice.Message, ").") || strings.Contains(advice.Message, "\n") {
					t.Errorf("%s is not one sentence: %q", advice.Reason, advice.Message)
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("advice (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDocs checks that the reference page knows each rule, in the words of the server, and each reason.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []annexed.Rule{
		annexed.RuleLatest, annexed.RuleLatestFromEtcd, annexed.RuleAny, annexed.RuleNotOlderThan, ruleNotOlderThanFromEtcd,
		annexed.RuleExact, annexed.RuleExactFromEtcd, annexed.RuleContinue, annexed.RuleContinueFromEtcd,
		annexed.RuleNotReady, annexed.RuleNoCache, annexed.RuleGetLatest, annexed.RuleNotStarted,
		annexed.RuleWatch, annexed.RuleWatchFromEtcd,
	} {
		words := explanation(rule)
		if words == "" {
			t.Errorf("%s has no explanation", rule)
		}
		if line := "| `" + string(rule) + "` | " + words; !strings.Contains(string(page), line) {
			t.Errorf("docs/explain.md does not have %q", line)
		}
	}
	for _, reason := range []string{
		adviceLimitIgnored, adviceNotOlderThan, adviceNewerVersion, adviceStartAgain, adviceUseCache, adviceAskForNamespace,
		adviceFieldNotSelectable, adviceIndexField, adviceIndexLabel, adviceSelectExactly, adviceAdoptGroup, adviceUseInformer, advicePaginate,
	} {
		if !strings.Contains(string(page), "| `"+reason+"` |") {
			t.Errorf("docs/explain.md does not have the reason %s", reason)
		}
	}
}
