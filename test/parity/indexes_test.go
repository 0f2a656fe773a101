// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	// stockNamespace has the same gadgets at every target.
	stockNamespace = "stock"
	stockSize      = 300
	// teamIndex and colorIndex are names of indexes in the metrics.
	teamIndex  = "l:team"
	colorIndex = "f:spec.color"
	// teamWatch are the watches that are dispatched by the label team.
	teamWatch = "watch " + teamIndex
)

// selection is a list or watch by selectors.
type selection struct{ labels, fields string }

// selections are read from the index of the label team, from that of a field, from
// the one of several that offers less, or from none.
func selections() map[string]selection {
	return map[string]selection{
		"everything":              {},
		"indexed label":           {labels: "team=a"},
		"indexed label, empty":    {labels: "team="},
		"indexed label, in one":   {labels: "team in (b)"},
		"indexed label, in two":   {labels: "team in (a,b),!gone"},
		"indexed label, not":      {labels: "team!=a"},
		"indexed label, notin":    {labels: "team notin (a,b)"},
		"indexed label, exists":   {labels: "team"},
		"indexed label, absent":   {labels: "!team"},
		"indexed label, of none":  {labels: "team=nobody"},
		"other label":             {labels: "shelf=x"},
		"both labels":             {labels: "team=a,shelf=x"},
		"field":                   {fields: "spec.color=red"},
		"field, not":              {fields: "spec.color!=red"},
		"field, absent":           {fields: "spec.color=,spec.hot=false"},
		"fields, of none":         {fields: "spec.color=,spec.hot=true"},
		"field, number, and name": {fields: "spec.size=3,metadata.name!=g-00010"},
		"fields, several not":     {fields: "spec.color!=red,spec.size!=3,spec.hot!=false"},
		"indexed label and field": {labels: "team=a", fields: "spec.color=red"},
		"other label and field":   {labels: "shelf=x", fields: "spec.color!=red"},
	}
}

// orderedSelections yields the selections in one order, so that the answers of targets can be compared.
func orderedSelections() iter.Seq2[string, selection] {
	return func(yield func(string, selection) bool) {
		all := selections()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

// parameters are those of the query.
func (q selection) parameters() url.Values {
	values := url.Values{}
	if q.labels != "" {
		values.Set("labelSelector", q.labels)
	}
	if q.fields != "" {
		values.Set("fieldSelector", q.fields)
	}
	return values
}

// names are those of the stock that match, one by one, in the order of their keys.
func (q selection) names(t *testing.T) []string {
	t.Helper()
	names := []string{}
	for _, gadget := range q.stock(t) {
		names = append(names, gadget.GetName())
	}
	return names
}

// stock are the gadgets that match.
func (q selection) stock(t *testing.T) (matching []*unstructured.Unstructured) {
	t.Helper()
	byLabel, err := labels.Parse(q.labels)
	if err != nil {
		t.Fatal(err)
	}
	byField, err := fields.ParseSelector(q.fields)
	if err != nil {
		t.Fatal(err)
	}
	for i := range stockSize {
		gadget := stockGadget(i)
		set := fields.Set{"metadata.name": gadget.GetName(), "metadata.namespace": stockNamespace}
		for _, field := range []string{"color", "size", "hot"} {
			if value, found, err := unstructured.NestedFieldNoCopy(gadget.Object, "spec", field); err == nil && found {
				set["spec."+field] = fmt.Sprint(value)
			}
		}
		if byLabel.Matches(labels.Set(gadget.GetLabels())) && byField.Matches(set) {
			matching = append(matching, gadget)
		}
	}
	return matching
}

// stockGadget is a gadget of the series that has more labels: no team is that of most.
func stockGadget(i int) *unstructured.Unstructured {
	gadget := env.SeedGadget(stockNamespace, i)
	set := map[string]string{"shelf": []string{"x", "y", "z"}[i%3]}
	if team := i % 5; team < 4 {
		set["team"] = []string{"a", "b", "c", ""}[team]
	}
	if i%11 == 0 {
		set["gone"] = ""
	}
	gadget.SetLabels(set)
	return gadget
}

// stock fills the namespace of the session with gadgets, unless it is full.
func (s *session) stock() {
	if len(s.peek(http.MethodGet, s.gadgets()).want(http.StatusOK).items()) == stockSize {
		return
	}
	for i := range stockSize {
		s.create(s.gadgets(), stockGadget(i))
	}
}

// create makes an object in a collection, whose path says the namespace.
func (s *session) create(collection string, object *unstructured.Unstructured) *response {
	s.t.Helper()
	object.SetNamespace("")
	body, err := json.Marshal(object)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.ask(s.target.api, "create "+object.GetName(), http.MethodPost, collection, string(body)).want(http.StatusCreated)
}

// items are the objects of a list.
func (r *response) items() []any {
	r.t.Helper()
	items, _, err := unstructured.NestedSlice(r.object().Object, "items")
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	return items
}

// itemNames are the names in a list.
func (r *response) itemNames() []string {
	r.t.Helper()
	names := []string{}
	for _, item := range r.items() {
		name, _, err := unstructured.NestedString(item.(map[string]any), "metadata", "name")
		if err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
		names = append(names, name)
	}
	return names
}

// compareIndexed is compare over the stock, while annex indexes gadgets by the label
// team, which also is the watch trigger. kube-apiserver has no such thing; it is the
// judge. What is named must have been used, as usedBy names it: an index, "" for lists past every
// index, a trigger.
func compareIndexed(t *testing.T, script func(*session), read ...string) {
	t.Helper()
	if err := env.EnsureNamespace(t.Context(), suite.hostTarget.api.config, stockNamespace); err != nil {
		t.Fatal(err)
	}
	t.Run("stock", func(t *testing.T) {
		for _, target := range []*target{suite.hostTarget, suite.annexTarget, suite.viaTarget} {
			t.Run(target.name, func(t *testing.T) {
				t.Parallel()
				(&session{t: t, target: target, namespace: stockNamespace}).stock()
			})
		}
	})
	targets := []*target{suite.annexTarget, suite.viaTarget}
	before := map[*target]map[string]int{}
	for _, target := range targets {
		declareTeamIndex(t, target, "gadgets")
		s := &session{t: t, target: target, namespace: stockNamespace}
		s.waitForTeamIndex(s.gadgets())
		before[target] = s.usedBy()
	}
	compare(t, func(s *session) {
		s.namespace = stockNamespace
		script(s)
	})
	for _, target := range targets {
		s := &session{t: t, target: target}
		for _, index := range read {
			// A watch is counted when it is over for the server.
			s.until(fmt.Sprintf("%q to have been used at %s", index, target.name), func() bool {
				return s.usedBy()[index] > before[target][index]
			})
		}
	}
}

// declareTeamIndex makes team an index and the watch trigger of a resource until the
// test ends. The group stays served.
func declareTeamIndex(t *testing.T, target *target, resource string) {
	t.Helper()
	client, err := versioned.NewForConfig(target.crds.config)
	if err != nil {
		t.Fatal(err)
	}
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	declared := &v1alpha1.AnnexedGroup{Spec: v1alpha1.AnnexedGroupSpec{Resources: []v1alpha1.AnnexedResourceSpec{{
		Resource: resource, IndexLabels: []string{"team"}, WatchIndex: &v1alpha1.WatchIndex{Label: "team"},
	}}}}
	declared.Name = target.group
	if declared, err = groups.Create(t.Context(), declared, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := groups.Delete(context.WithoutCancel(t.Context()), target.group, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// A group is closed until its status says otherwise. To see the one mode after the other
	// is to know that the server is not behind.
	s := &session{t: t, target: target}
	serves := func(mode v1alpha1.ServingMode) {
		s.until("the group to be "+string(mode), func() bool { return s.replica().Serving == mode })
	}
	serves(v1alpha1.ServingClosed)
	declared.Status.Serving = v1alpha1.ServingOpen
	if _, err := groups.UpdateStatus(t.Context(), declared, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	serves(v1alpha1.ServingOpen)
}

// replica is what a server knows of its group, the zero value when it does not say.
func (s *session) replica() (status v1alpha1.ReplicaStatus) {
	answer, err := s.open(s.t.Context(), s.target.crds, http.MethodGet, "/apis/kubeannex.io/v1alpha1/annexedgroups/"+s.target.group+"/"+v1alpha1.ReplicaSubresource, "")
	if err != nil {
		return status
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || json.NewDecoder(answer.Body).Decode(&status) != nil {
		return v1alpha1.ReplicaStatus{}
	}
	return status
}

// waitForTeamIndex waits until lists of a collection by team read the index. None may be empty meanwhile.
func (s *session) waitForTeamIndex(collection string) {
	s.t.Helper()
	s.until("the index of "+collection, func() bool {
		before := s.usedBy()[teamIndex]
		answer := s.peek(http.MethodGet, collection+"?labelSelector=team%3Da")
		if answer.code != http.StatusOK {
			return false
		}
		if len(answer.items()) == 0 {
			s.t.Fatalf("a list of %s by a team is empty", collection)
		}
		return s.usedBy()[teamIndex] > before
	})
}

var (
	metricLine  = regexp.MustCompile(`(?m)^(\w+)\{(.*)\} (\S+)$`)
	metricLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// usedBy tells of annex, by index, how many objects of the group lists have read from
// the cache, and, by "watch " and the trigger, how many watches were dispatched by it.
func (s *session) usedBy() map[string]int {
	s.t.Helper()
	used := map[string]int{}
	for _, metric := range s.metrics() {
		switch {
		case metric.name == "apiserver_storage_list_fetched_objects_total" && metric.labels["storage"] == "watchcache":
			used[metric.labels["index"]] += metric.value
		case metric.name == "annex_reads_total" && metric.labels["verb"] == "watch":
			used["watch "+metric.labels["index"]] += metric.value
		}
	}
	return used
}

// metric is a counter or gauge of the group.
type metric struct {
	name   string
	labels map[string]string
	value  int
}

// metrics are those of annex about the group of the target.
func (s *session) metrics() []metric {
	s.t.Helper()
	all, err := s.readMetrics()
	if err != nil {
		s.t.Fatalf("reading the metrics: %v", err)
	}
	return all
}

func (s *session) readMetrics() (all []metric, err error) {
	answer, err := s.open(s.t.Context(), s.target.crds, http.MethodGet, "/metrics", "", "Accept", "text/plain")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %d: %.200s", answer.StatusCode, body)
	}
	for _, line := range metricLine.FindAllStringSubmatch(string(body), -1) {
		set := map[string]string{}
		for _, label := range metricLabel.FindAllStringSubmatch(line[2], -1) {
			set[label[1]] = label[2]
		}
		if value, err := strconv.ParseFloat(line[3], 64); err == nil && set["group"] == s.target.group {
			all = append(all, metric{line[1], set, int(value)})
		}
	}
	return all, nil
}
