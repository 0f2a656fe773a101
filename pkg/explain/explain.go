// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/reads"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// Config is what an Explainer asks.
type Config struct {
	// Handler serves the resources of the server. It stands behind authentication,
	// authorization and fairness: the Explainer itself asks whether the user may list.
	Handler http.Handler
	// Server is the whole server with all of its filters. It takes the user of a request from
	// the request's context. Lists are run by it, so that each is let in, waits and is
	// recorded as any other list of that user. LimitAnalyses bounds how many run at a time.
	Server http.Handler
	// Authorizer knows who may list what, here and in the cluster.
	Authorizer authorizer.UnconditionalAuthorizer
	// Definition describes a resource that is served here. The zero value stands for what is not known.
	Definition func(schema.GroupVersionResource) Definition
	// Seats estimates the fairness seats of a request. It is nil in a server without priority and fairness.
	Seats func(*http.Request) int64
	// Host is the cluster. It is nil in a server that runs alone.
	Host Host
	// KeptHere reports whether annex keeps a resource. It is asked only if there is a Host.
	KeptHere func(schema.GroupResource) bool
}

// Definition is what advice needs to know of a resource.
type Definition struct {
	// Namespaced says that its objects are in namespaces.
	Namespaced bool
	// Fields are those that a field selector can name, beside metadata.name and metadata.namespace.
	Fields []string
	// Indexes are the declared ones.
	Indexes annexed.Indexes
}

func (d Definition) hasLabelIndex(key string) bool {
	return d.Indexes.Trigger.Label == key || slices.Contains(d.Indexes.Labels, key)
}

// Explainer explains lists. It is safe for concurrent use.
type Explainer struct {
	config Config
}

// New returns an Explainer.
func New(config Config) *Explainer {
	return &Explainer{config: config}
}

// Explain tells what the list is served from and what it costs, for the user in
// the context. Its errors are API statuses: those of a malformed specification, and
// those that the list itself is answered with, unchanged.
func (e *Explainer) Explain(ctx context.Context, spec *kubeannex.ListReviewSpec) (*kubeannex.ListReviewStatus, error) {
	request, errs := newRequest(spec)
	if len(errs) != 0 {
		return nil, apierrors.NewInvalid(kubeannex.Kind("ListReview"), "", errs)
	}
	inner := contextFor(ctx, request)
	if err := e.authorize(inner, request); err != nil {
		return nil, err
	}
	if e.config.Host != nil && !e.config.KeptHere(request.Resource().GroupResource()) {
		return explainHost(inner, e.config.Host, request, spec.Analyze)
	}
	if !spec.Analyze {
		return e.explainAnnex(inner, request, nil)
	}
	if request.Info.Verb == verbWatch {
		return nil, apierrors.NewBadRequest("a watch is not run for analyze: remove sendInitialEvents or analyze")
	}
	return e.explainAnnex(inner, request, func() (*kubeannex.ListCost, annexed.Reading, error) {
		return e.analyze(inner, ctx, request)
	})
}

// explainAnnex explains a list of what annex keeps. analyze runs it, unless it is nil.
func (e *Explainer) explainAnnex(ctx context.Context, request *Request, analyze func() (*kubeannex.ListCost, annexed.Reading, error)) (*kubeannex.ListReviewStatus, error) {
	explained, recorder := annexed.WithExplanation(ctx)
	if _, _, err := send(explained, e.config.Handler, request, true); err != nil {
		return nil, err
	}
	all := e.mayListAll(ctx, request)
	status := &kubeannex.ListReviewStatus{Path: request.URI, Server: kubeannex.ListServerAnnex, Estimate: &kubeannex.ListCost{}}
	reading, ok := recorder.Reading()
	if ok {
		if !all {
			reading = hide(reading)
		}
		status.Estimate = estimate(reading)
	} else {
		status.Unknown = append(status.Unknown, "How the resource is read: it is not kept by annex's storage.")
	}
	if !all {
		status.Unknown = append(status.Unknown, hidden(request))
	}
	e.addSeats(ctx, request, all, status)
	if analyze != nil {
		actual, ran, err := analyze()
		if err != nil {
			return nil, err
		}
		status.Actual = actual
		if ran.Rule != "" {
			reading, ok = ran, true
		}
		if !all {
			hideCost(actual)
			reading = hide(reading)
		}
	}
	if !ok {
		status.Source = kubeannex.ListSourceUnknown
		return status, nil
	}
	describe(status, reading)
	options, err := request.decode()
	if err != nil {
		return status, nil //nolint:nilerr // the handler has accepted it, so there is nothing but advice to lose
	}
	status.Advice = advise(situation{
		request: request, options: options, reading: reading, definition: e.config.Definition(request.Resource()),
	})
	return status, nil
}

// addSeats adds what priority and fairness reckons with, which it takes from all objects of the resource.
func (e *Explainer) addSeats(ctx context.Context, request *Request, all bool, status *kubeannex.ListReviewStatus) {
	if e.config.Seats == nil {
		status.Unknown = append(status.Unknown, "Fairness seats: the server has no priority and fairness, its max-in-flight limits count every request once.")
		return
	}
	if !all {
		return
	}
	status.Estimate.Seats = ptr.To(e.config.Seats(request.http(ctx)))
}

// analyze runs the list in the context of another request. The reading is empty when nothing was recorded.
func (e *Explainer) analyze(ctx, around context.Context, request *Request) (*kubeannex.ListCost, annexed.Reading, error) {
	ctx, recorder := reads.WithAnalysis(ctx, around)
	ctx = comingFrom(ctx, around, request)
	start := time.Now()
	size, header, err := send(ctx, e.config.Server, request, false)
	passWarnings(around, header)
	if err != nil {
		return nil, annexed.Reading{}, err
	}
	cost := &kubeannex.ListCost{Bytes: &size, Duration: &metav1.Duration{Duration: time.Since(start)}}
	reading, ok := recorder.Reading()
	if ok {
		cost.Total, cost.Scanned, cost.Returned = known(reading.Total), known(reading.Scanned), known(reading.Returned)
	}
	return cost, reading, nil
}

// estimate is the cost of a reading that was only explained.
func estimate(reading annexed.Reading) *kubeannex.ListCost {
	cost := &kubeannex.ListCost{Total: known(reading.Total), Scanned: known(reading.Scanned), Returned: known(reading.Returned)}
	if reading.Rule == annexed.RuleWatch {
		cost.Scanned, cost.Returned = nil, nil
		return cost
	}
	if reading.Returned == 0 || reading.Returned > 0 && reading.ObjectBytes > 0 {
		cost.Bytes = ptr.To(reading.Returned * reading.ObjectBytes)
	}
	return cost
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// describe puts a reading into a status.
func describe(status *kubeannex.ListReviewStatus, reading annexed.Reading) {
	status.Source = cmp.Or(reads.SourceOf(reading.Source), kubeannex.ListSourceUnknown)
	status.Rule = string(reading.Rule)
	status.Explanation = explanation(reading.Rule)
	status.LimitIgnored = reading.LimitIgnored
	status.Index = reading.Index
}
