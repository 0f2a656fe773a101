// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/storage"
)

const (
	anyMatch = "&resourceVersionMatch="
	exact    = anyMatch + "Exact"
	notOlder = anyMatch + "NotOlderThan"
)

// packings are values of Accept-Encoding.
func packings() map[string]string {
	return map[string]string{"not packed": "-", "gzip": "gzip", "gzip among others": "br, gzip;q=0.5,deflate , gzip", "identity": "identity"}
}

// forms change how an answer is printed: parameters, or a client that is known to be read by people.
func forms() map[string]struct{ query, agent string } {
	return map[string]struct{ query, agent string }{
		"as it is":                  {},
		"pretty":                    {query: "&pretty=true"},
		"not pretty for curl":       {query: "&pretty=false", agent: "curl/8.5.0"},
		"curl":                      {agent: "curl/8.5.0"},
		"Mozilla":                   {agent: "Mozilla/5.0"},
		"rows without objects":      {query: "&includeObject=None"},
		"rows with metadata":        {query: "&includeObject=Metadata"},
		"rows with objects":         {query: "&includeObject=Object"},
		"rows with objects, pretty": {query: "&includeObject=Object&pretty=1"},
	}
}

func scopes() map[string]string {
	return map[string]string{
		"all gadgets": gadgets("v1", ""), "small namespace": gadgets("v1", small), "large namespace": gadgets("v1", large),
		"empty namespace": gadgets("v1", "empty"), "all old gadgets": gadgets("v1beta1", ""), "old gadgets of a namespace": gadgets("v1beta1", small),
		"planets": planets, "shifts": shifts(),
	}
}

func selectors() map[string]string {
	selectors := map[string]string{"no selector": ""}
	for name, label := range map[string]string{
		"a label": "team=a", "a label excluded": "team!=a", "labels in a set": "team in (a,b),!size", "nothing by label": "team=nobody",
	} {
		selectors[name] = "&labelSelector=" + url.QueryEscape(label)
	}
	for name, field := range map[string]string{
		"a name": "metadata.name=g-01", "a name of a planet": "metadata.name=unicode", "a name excluded": "metadata.name!=g-01",
		"a namespace by field": "metadata.namespace=" + small,
	} {
		selectors[name] = "&fieldSelector=" + url.QueryEscape(field)
	}
	selectors["a label and a name"] = selectors["a label"] + selectors["a name excluded"]
	return selectors
}

func pages() map[string]string {
	return map[string]string{"one page": "", "pages of seven": "&limit=7", "a page that is large enough": "&limit=1000", "limit of zero": "&limit=0"}
}

// versions are resource versions that are served. The number is that of the revision.
func (w *world) versions() map[string]string {
	now, history, early := fmt.Sprint(w.etcd.Revision()), fmt.Sprint(w.history), fmt.Sprint(w.early)
	return map[string]string{
		"newest":              "",
		"any":                 "&resourceVersion=0",
		"any, said":           "&resourceVersion=0" + notOlder,
		"not older than now":  "&resourceVersion=" + now + notOlder,
		"now":                 "&resourceVersion=" + now,
		"exactly now":         "&resourceVersion=" + now + exact,
		"exactly then":        "&resourceVersion=" + history + exact,
		"exactly early":       "&resourceVersion=" + early + exact,
		"not older than then": "&resourceVersion=" + history + notOlder,
	}
}

// TestList meets every form of a list with every way to ask for it.
func TestList(t *testing.T) {
	w := shared
	w.mustSettle(t)
	accepted, packed, formed, scoped, selected, paged, versioned := accepts("PartialObjectMetadataList"), packings(), forms(), scopes(), selectors(), pages(), w.versions()
	asked := 0
	for _, c := range pairwise(sortedKeys(accepted), sortedKeys(scoped), sortedKeys(selected), sortedKeys(versioned), sortedKeys(formed), sortedKeys(packed), sortedKeys(paged)) {
		r := get("", "Accept", accepted[c[0]], "Accept-Encoding", packed[c[5]])
		form := formed[c[4]]
		if form.agent != "" {
			r.header["User-Agent"] = form.agent
		}
		r.path = scoped[c[1]] + "?" + strings.TrimPrefix(selected[c[2]]+versioned[c[3]]+form.query+paged[c[6]], "&")
		next := scoped[c[1]] + "?" + strings.TrimPrefix(selected[c[2]]+form.query+paged[c[6]], "&") + "&continue="
		asked += w.samePages(t, r, next)
	}
	t.Logf("%d lists and pages are compared", asked)
}

// token is a continue token in any form of an answer.
var token = regexp.MustCompile(`eyJ2Ijoib[A-Za-z0-9_-]+`)

// samePages compares an answer and all the pages that follow. It returns how many there are.
func (w *world) samePages(t *testing.T, r request, next string) int {
	t.Helper()
	for page := 1; ; page++ {
		got := w.same(t, r)
		further := token.Find(got.body)
		if further == nil || page == 100 {
			return page
		}
		r.path = next + string(further)
	}
}

// TestSelectableFields lists by fields that have an index, in the versions that have them.
func TestSelectableFields(t *testing.T) {
	w := shared
	w.mustSettle(t)
	fields := []string{
		"spec.color=red", "spec.color!=red", "spec.color=", "spec.color=nobody", "spec.size=2", "spec.size!=2", "spec.hot=true", "spec.size=02",
		"spec.color=red,spec.size=2", "spec.color=red,metadata.name!=g-00", "spec.color=red,spec.color=blue", "spec.unknown=1", "status.size=3", "spec.color==green",
	}
	found := 0
	for _, scope := range []string{gadgets("v1", ""), gadgets("v1", small), gadgets("v1beta1", ""), planets} {
		for _, field := range fields {
			for _, further := range []string{"", "&resourceVersion=0", "&limit=2", "&labelSelector=team%3Da&resourceVersion=0"} {
				query := "?fieldSelector=" + url.QueryEscape(field) + further
				got := w.same(t, get(scope+query))
				w.samePages(t, get(scope+query), scope+query+"&continue=")
				if strings.Contains(string(got.body), `"name":"g-`) {
					found++
				}
			}
			w.same(t, get(scope+"?fieldSelector="+url.QueryEscape(field), "Accept", as(jsonType, "PartialObjectMetadataList", "v1")))
		}
	}
	if found == 0 {
		t.Error("no field finds anything: nothing was tested")
	}
}

// TestListMistakes meets requests that are refused with other reasons to refuse them: the order in which servers look for
// mistakes is part of the answer.
func TestListMistakes(t *testing.T) {
	w := shared
	w.mustSettle(t)
	now := fmt.Sprint(w.etcd.Revision())
	elsewhere := string(token.Find(w.same(t, get(gadgets("v1", small)+"?limit=2")).body))
	mistakes := map[string]string{
		"none": "", "unknown parameter": "&colour=red",
		"malformed label selector": "&labelSelector=a%3D%3D,b%20c", "label value too long": "&labelSelector=a%3D" + strings.Repeat("x", 64),
		"malformed field selector": "&fieldSelector=spec.color", "unknown field": "&fieldSelector=spec.unknown%3D1", "empty field selector": "&fieldSelector=",
		"limit that is no number": "&limit=x", "negative limit": "&limit=-1", "limit past int64": "&limit=9223372036854775808", "two limits": "&limit=2&limit=3",
		"version that is no number": "&resourceVersion=x", "negative version": "&resourceVersion=-1", "version past uint64": "&resourceVersion=18446744073709551616",
		"match without a version": exact, "exactly any": "&resourceVersion=0" + exact, "unknown match": "&resourceVersion=" + now + anyMatch + "Foo",
		"malformed token": "&continue=x", "empty token": "&continue=", "token and version": "&continue=" + elsewhere + "&resourceVersion=" + now,
		"token and any version": "&limit=2&continue=" + elsewhere + "&resourceVersion=0", "token of another scope": "&limit=2&continue=" + elsewhere,
		"initial events of a list": "&sendInitialEvents=true", "no initial events": "&sendInitialEvents=false", "initial events that are no truth": "&sendInitialEvents=x",
		"timeout that is no number": "&timeoutSeconds=x", "timeout": "&timeoutSeconds=30&timeout=30s", "timeout that is malformed": "&timeout=x",
		"bookmarks of a list": "&allowWatchBookmarks=true", "watch switched off": "&watch=false", "pretty that is no truth": "&pretty=x",
		"semicolon": "&limit=1;continue=x", "escape that is malformed": "&labelSelector=%zz", "unknown includeObject": "&includeObject=All", "two includeObjects": "&includeObject=None&includeObject=Object",
		"field selector twice": "&fieldSelector=metadata.name%3Dg-01&fieldSelector=metadata.name%3Dg-02",
	}
	accepted := map[string]string{
		"JSON": jsonType, "plain text": "text/plain", "table": as(jsonType, "Table", "v1"), "metadata": as(jsonType, "PartialObjectMetadataList", "v1"),
		"metadata of one": as(jsonType, "PartialObjectMetadata", "v1"), "YAML": yamlType, "metadata in protobuf": as(protobufType, "PartialObjectMetadataList", "v1"),
	}
	scoped := map[string]string{"gadgets": gadgets("v1", ""), "old gadgets of a namespace": gadgets("v1beta1", small), "planets": planets}
	refused := 0
	for _, c := range pairwise(sortedKeys(mistakes), sortedKeys(accepted), sortedKeys(scoped), []string{"-", "gzip"}) {
		got := w.same(t, get(scoped[c[2]]+"?"+strings.TrimPrefix(mistakes[c[0]], "&"), "Accept", accepted[c[1]], "Accept-Encoding", c[3]))
		if got.code >= http.StatusBadRequest {
			refused++
		}
	}
	// Two mistakes of different kinds at a time.
	some := []string{
		"malformed label selector", "malformed field selector", "unknown field", "limit that is no number", "version that is no number", "match without a version",
		"unknown match", "malformed token", "initial events of a list", "timeout that is malformed", "unknown includeObject", "watch switched off",
	}
	for i, first := range some {
		for _, second := range some[i+1:] {
			w.same(t, get(gadgets("v1", small)+"?"+strings.TrimPrefix(mistakes[first]+mistakes[second], "&")))
		}
	}
	t.Logf("%d requests are refused", refused)
}

// TestListOtherwise asks for lists by other methods and at places near them.
func TestListOtherwise(t *testing.T) {
	w := shared
	w.mustSettle(t)
	for _, path := range []string{
		gadgets("v1", small) + "/", gadgets("v1", "") + "/", gadgets("v2", ""), groupPath + "/v1/gizmos", "/apis/nobody.annex.test/v1/gadgets",
		groupPath + "/v1/namespaces/" + small + "/planets", planets + "/", groupPath + "/v1/namespaces//gadgets", gadgets("v1", "NoName"), gadgets("v1", small) + "//",
		groupPath + "/v1/watch/gadgets?timeoutSeconds=1&fieldSelector=metadata.name%3Dnobody", gadgets("v1", small) + "?fieldSelector=metadata.name%3Dg-01,metadata.namespace%3Dlarge",
		"/apis/kubeannex.io/v1alpha1/annexedgroups", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=1",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3Dgadgets.lab.annex.test",
		strings.Replace(gadgets("v1", small), "gadgets", "%67adgets", 1), gadgets("v1", "sm%61ll"), gadgets("v1", "a%2Fb"),
	} {
		w.same(t, get(path))
	}
	for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodPatch, http.MethodTrace, "LIST"} {
		for _, path := range []string{gadgets("v1", small), planets} {
			w.same(t, request{method: method, path: path, body: ""})
		}
	}
	for name, header := range map[string][]string{
		"a range": {"Range", "bytes=0-10"}, "a condition": {"If-None-Match", "*"}, "since": {"If-Modified-Since", "Mon, 02 Jan 2034 15:04:05 GMT"},
		"a proxy": {"X-Forwarded-For", "10.0.0.1"}, "nobody": {"Authorization", "Bearer nobody"}, "unknown user": {"Impersonate-User", "nobody"},
	} {
		t.Run(name, func(t *testing.T) { w.same(t, get(gadgets("v1", small), header...)) })
	}
}

// TestListOfTheFuture waits, as upstream does, for a revision that may come.
func TestListOfTheFuture(t *testing.T) {
	w := shared
	w.mustSettle(t)
	future := fmt.Sprint(w.etcd.Revision() + 1_000_000)
	var group sync.WaitGroup
	for _, query := range []string{"", notOlder, exact, notOlder + "&limit=2", "&labelSelector=team%3Da", "&timeout=1s"} {
		for _, accept := range []string{jsonType, yamlType, as(jsonType, "Table", "v1"), as(protobufType, "PartialObjectMetadataList", "v1")} {
			group.Go(func() { w.same(t, get(gadgets("v1", "")+"?resourceVersion="+future+query, "Accept", accept)) })
		}
	}
	for _, path := range []string{gadgets("v1", small) + "/g-01", planets + "/unicode"} {
		group.Go(func() { w.same(t, get(path+"?resourceVersion="+future)) })
	}
	group.Wait()
}

// TestListOfThePast asks for what etcd has forgotten and no cache has known.
func TestListOfThePast(t *testing.T) {
	w := shared
	if _, err := w.client.Compact(t.Context(), w.before+1); err != nil {
		t.Fatal(err)
	}
	w.mustSettle(t)
	past, accepted := fmt.Sprint(w.before), accepts("PartialObjectMetadataList")
	for _, path := range resourcePaths() {
		token, err := storage.EncodeContinue("/registry/s/from\x00", "/registry/s/", w.before)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.same(t, get(path+"?resourceVersion="+past+exact)); got.code != http.StatusGone {
			t.Errorf("the past is answered with %d, want 410", got.code)
		}
		queries := []string{"resourceVersion=" + past + exact, "resourceVersion=" + past + exact + "&limit=3", "limit=2&continue=" + token, "continue=" + token, "resourceVersion=" + past}
		for i, name := range sortedKeys(accepted) {
			w.same(t, get(path+"?"+queries[i%len(queries)], "Accept", accepted[name]))
		}
		for _, query := range queries {
			w.same(t, get(path+"?"+query))
		}
	}
}
