// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubeannex/annex/test/env"
)

// TestRequestMetrics compares what the same request adds to the metrics of requests. Both servers are in one process and
// have them together, so they are asked one after the other.
func TestRequestMetrics(t *testing.T) {
	w := shared
	w.mustSettle(t)
	now := fmt.Sprint(w.etcd.Revision())
	requests := map[string]request{
		"list":                       get(gadgets("v1", "") + "?resourceVersion=0"),
		"newest list":                get(gadgets("v1", "")),
		"list of a namespace":        get(gadgets("v1", small) + "?resourceVersion=0&labelSelector=team%3Da"),
		"list by a field":            get(gadgets("v1", "") + "?resourceVersion=0&fieldSelector=spec.color%3Dred"),
		"list by a name":             get(gadgets("v1", small) + "?resourceVersion=0&fieldSelector=metadata.name%3Dg-01"),
		"list by a name, everywhere": get(gadgets("v1", "") + "?fieldSelector=metadata.name%3Dg-01"),
		"page":                       get(gadgets("v1", "") + "?limit=3"),
		"packed list":                get(gadgets("v1", "")+"?resourceVersion=0", "Accept-Encoding", "gzip"),
		"pretty list":                get(gadgets("v1", small) + "?pretty=1"),
		"deprecated list":            get(gadgets("v1beta1", small) + "?resourceVersion=0"),
		"planets":                    get(planets + "?resourceVersion=0"),
		"exact list":                 get(gadgets("v1", small) + "?resourceVersion=" + now + exact),
		"YAML":                       get(gadgets("v1", small), "Accept", yamlType),
		"table":                      get(gadgets("v1", small)+"?includeObject=None", "Accept", as(jsonType, "Table", "v1")),
		"metadata":                   get(gadgets("v1", small), "Accept", as(protobufType, "PartialObjectMetadataList", "v1")),
		"refused form":               get(gadgets("v1", small), "Accept", "text/plain"),
		"refused selector":           get(gadgets("v1", small) + "?fieldSelector=spec.unknown%3D1"),
		"refused version":            get(gadgets("v1", small) + "?resourceVersion=x"),
		"object":                     get(gadgets("v1", small) + "/g-01"),
		"object from the cache":      get(planets + "/unicode?resourceVersion=0"),
		"missing object":             get(gadgets("v1", small) + "/nobody"),
		"watch":                      get(gadgets("v1", small) + "?watch=1&timeoutSeconds=1&resourceVersion=0"),
		"watch of metadata":          get(gadgets("v1", "")+"?watch=1&timeoutSeconds=1&resourceVersion="+fmt.Sprint(w.history), "Accept", as(protobufType, "PartialObjectMetadata", "v1")),
		"watch for a list":           get(planets + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true" + notOlder),
	}
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(w.plain.cost(t, r), w.compact.cost(t, r)); diff != "" {
				t.Errorf("%s (-plain +compact):\n%s", r, diff)
			}
		})
	}
}

// cost asks a server and returns what that has added to the metrics. The length of a packed answer depends on who packs it, so of
// that there is how much more is counted than came.
func (s *side) cost(t *testing.T, r request) map[string]float64 {
	t.Helper()
	before := requestMetrics(t)
	got, err := s.ask(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var added map[string]float64
	err = wait.PollUntilContextCancel(t.Context(), pollInterval, true, func(context.Context) (bool, error) {
		added = map[string]float64{}
		counted := false
		for name, value := range requestMetrics(t) {
			if value != before[name] {
				added[name] = value - before[name]
				if got.zipped && strings.HasSuffix(name, " sum") {
					added[name] -= float64(got.sent)
				}
				counted = counted || strings.HasPrefix(name, "apiserver_request_duration_seconds{")
			}
		}
		return counted, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s is counted: %v", r, err)
	}
	return added
}

// requestMetrics are the series about requests for custom resources: counters, and of histograms their count and, of
// sizes, their sum.
func requestMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "apiserver_re") && !strings.HasPrefix(family.GetName(), "apiserver_watch_events_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			ofFixtures := false
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
				ofFixtures = ofFixtures || label.GetName() == "group" && label.GetValue() == env.FixtureGroup
			}
			if !ofFixtures {
				continue
			}
			name := fmt.Sprintf("%s{%s}", family.GetName(), strings.Join(labels, ","))
			switch {
			case metric.GetHistogram() != nil:
				series[name] = float64(metric.GetHistogram().GetSampleCount())
				if strings.Contains(name, "size") {
					series[name+" sum"] = metric.GetHistogram().GetSampleSum()
				}
			case metric.GetCounter() != nil:
				series[name] = metric.GetCounter().GetValue()
			}
		}
	}
	return series
}
