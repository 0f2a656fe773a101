// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// installFairness lets priority and fairness know what an index spares a list, and that a write is not
// offered to every watch. It must be called before the configuration is completed. In a server without
// fairness it does nothing.
func (c *Config) installFairness(catalog *annexed.Catalog, indexes *declaredIndexes) {
	upstream := c.GenericConfig.FlowControl
	if upstream == nil {
		return
	}
	c.GenericConfig.FlowControl = indexedFairness{
		Interface: upstream,
		seats:     newListSeats(upstream, c.GenericConfig.StorageObjectCountTracker, catalog),
		watches:   newWatchInterest(upstream, indexes.trigger),
	}
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		return withQuery(build(apiHandler, config))
	}
}

type queryKey struct{}

// withQuery puts the query of a read where fairness finds it: upstream hands on nothing
// of a request but its RequestInfo.
func withQuery(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodGet {
			request = request.WithContext(context.WithValue(request.Context(), queryKey{}, request.URL.RawQuery))
		}
		handler.ServeHTTP(w, request)
	})
}

// indexedFairness is upstream's priority and fairness, but it seats lists by listSeats where that knows them, and
// counts watches by watchInterest.
type indexedFairness struct {
	utilflowcontrol.Interface
	seats   *listSeats
	watches *watchInterest
}

var _ utilflowcontrol.Interface = indexedFairness{}

// RegisterWatch implements utilflowcontrol.WatchTracker.
func (f indexedFairness) RegisterWatch(r *http.Request) utilflowcontrol.ForgetWatchFunc {
	return f.watches.RegisterWatch(r)
}

// GetInterestedWatchCount implements utilflowcontrol.WatchTracker.
func (f indexedFairness) GetInterestedWatchCount(info *genericapirequest.RequestInfo) int {
	return f.watches.GetInterestedWatchCount(info)
}

// Handle implements utilflowcontrol.Interface. What upstream's filter notes of its estimate is noted
// here of the other one (k8s.io/apiserver pkg/server/filters/priority-and-fairness.go, estimateWork).
func (f indexedFairness) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate, queued fairqueuing.QueueNoteFn, execute func(),
) {
	var flowSchema, level string
	classified := func(fs *flowcontrol.FlowSchema, pl *flowcontrol.PriorityLevelConfiguration, distinguisher string) {
		flowSchema, level = fs.Name, pl.Name
		note(fs, pl, distinguisher)
	}
	seat := func() flowcontrolrequest.WorkEstimate {
		query, ok := ctx.Value(queryKey{}).(string)
		if !ok {
			return estimate()
		}
		work, ok := f.seats.estimate(ctx, digest.RequestInfo, query, level)
		if !ok {
			return estimate()
		}
		flowcontrolmetrics.ObserveWorkEstimatedSeats(level, flowSchema, work.MaxSeats())
		httplog.AddKeyValue(ctx, "apf_iseats", work.InitialSeats)
		return work
	}
	f.Interface.Handle(ctx, digest, classified, seat, queued, execute)
}

// listSeats estimates lists as upstream does, but from the objects that a list goes through
// in place of all there are. Upstream takes every list from a cache for one of all objects
// (k8s.io/apiserver pkg/util/flowcontrol/request/list_work_estimator.go).
type listSeats struct {
	fairness utilflowcontrol.Interface
	counts   flowcontrolrequest.StorageObjectCountTracker
	catalog  *annexed.Catalog
}

func newListSeats(fairness utilflowcontrol.Interface, counts flowcontrolrequest.StorageObjectCountTracker, catalog *annexed.Catalog) *listSeats {
	return &listSeats{fairness: fairness, counts: counts, catalog: catalog}
}

// longestQuery bounds the work for one request, in bytes. Fairness comes before authorization and
// seats requests under a lock that all others need (k8s.io/apiserver
// pkg/util/flowcontrol/apf_controller.go, startRequest).
const longestQuery = 2048

// wholeList is the query of a list for which upstream takes the count as it is, and the cache for its source.
const wholeList = "resourceVersion=0"

// estimate reports false for a list that upstream is to estimate: it is answered by etcd, nothing is
// known of it, or counting has failed for some time. That calls for caution, as upstream has it.
func (s *listSeats) estimate(ctx context.Context, info *genericapirequest.RequestInfo, query, level string) (flowcontrolrequest.WorkEstimate, bool) {
	if !info.IsResourceRequest || info.Verb != "list" || info.Name != "" || info.Subresource != "" || len(query) > longestQuery {
		return flowcontrolrequest.WorkEstimate{}, false
	}
	opts, ok := parseListOptions(query)
	if !ok {
		return flowcontrolrequest.WorkEstimate{}, false
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	cost, ok := s.catalog.ListCost(ctx, resource, info.Namespace, opts)
	if !ok {
		return flowcontrolrequest.WorkEstimate{}, false
	}
	stats, err := s.counts.Get(resource.GroupResource().String())
	if errors.Is(err, flowcontrolrequest.ObjectCountStaleErr) {
		return flowcontrolrequest.WorkEstimate{}, false
	}
	stats.ObjectCount = cost.Scanned
	if cost.ObjectBytes > 0 {
		stats.EstimatedAverageObjectSizeBytes = cost.ObjectBytes
	}
	counted := func(string) (storage.Stats, error) { return stats, nil }
	upstream := flowcontrolrequest.NewWorkEstimator(counted, s.fairness.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), s.fairness.GetMaxSeats)
	whole := &http.Request{Method: http.MethodGet, URL: &url.URL{RawQuery: wholeList}}
	return upstream.EstimateWork(whole.WithContext(genericapirequest.WithRequestInfo(ctx, info)), "", level), true
}

// parseListOptions reads a query as the handler of lists does. It reports false for one that is refused there.
func parseListOptions(query string) (storage.ListOptions, bool) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return storage.ListOptions{}, false
	}
	asked := metav1.ListOptions{}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&values, &asked, nil); err != nil {
		return storage.ListOptions{}, false
	}
	label, err := labels.Parse(asked.LabelSelector)
	if err != nil {
		return storage.ListOptions{}, false
	}
	field, err := fields.ParseSelector(asked.FieldSelector)
	if err != nil {
		return storage.ListOptions{}, false
	}
	return storage.ListOptions{
		ResourceVersion:      asked.ResourceVersion,
		ResourceVersionMatch: asked.ResourceVersionMatch,
		Predicate:            storage.SelectionPredicate{Label: label, Field: field, Limit: asked.Limit, Continue: asked.Continue},
	}, true
}

// seatEstimator estimates as the filter of priority and fairness does
// (k8s.io/apiserver pkg/server/config.go, DefaultBuildHandlerChain) with indexedFairness, for no
// level of priority in particular. It is nil in a server without.
func seatEstimator(fairness utilflowcontrol.Interface, counts flowcontrolrequest.StorageObjectCountTracker, catalog *annexed.Catalog) func(*http.Request) int64 {
	if fairness == nil {
		return nil
	}
	upstream := flowcontrolrequest.NewWorkEstimator(counts.Get, fairness.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), fairness.GetMaxSeats)
	seats := newListSeats(fairness, counts, catalog)
	return func(request *http.Request) int64 {
		if info, ok := genericapirequest.RequestInfoFrom(request.Context()); ok {
			if work, ok := seats.estimate(request.Context(), info, request.URL.RawQuery, ""); ok {
				return int64(work.MaxSeats())
			}
		}
		work := upstream.EstimateWork(request, "", "")
		return int64(work.MaxSeats())
	}
}
