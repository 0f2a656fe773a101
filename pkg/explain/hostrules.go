// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// hostRules are the facts by which releases of kube-apiserver differ, with the
// default feature gates. Each was read in the source of k8s.io/apiserver, the last
// patch of each release: pkg/storage/cacher/cacher.go up to 1.32, and
// pkg/storage/cacher/delegator.go with delegator/interface.go from 1.33, beside
// pkg/features/kube_features.go.
type hostRules struct {
	// latestFromCache: ConsistentListFromCache is on from 1.31. Before, etcd answers
	// every list of the latest state.
	latestFromCache bool
	// limitFromCache: from 1.31 a cache answers with a limit. Before, it does so for resourceVersion 0 alone,
	// and ignores the limit.
	limitFromCache bool
	// snapshots: ListFromCacheSnapshot is on from 1.34. Before, etcd answers for exact versions and further pages.
	snapshots bool
	// watchList says whether a watch can begin with the objects: not known before
	// 1.27; on in 1.32 and from 1.34, off in 1.33 and before.
	watchList watchListGate
	// selectableFields: CustomResourceFieldSelectors is on from 1.31. Before, objects of definitions are
	// selected by name and namespace alone (k8s.io/apiextensions-apiserver pkg/features).
	selectableFields bool
}

type watchListGate int

const (
	watchListUnknown watchListGate = iota // the parameter is ignored
	watchListOff
	watchListOn
)

// The range of minor versions of Kubernetes 1 whose rules were read.
const (
	oldestHost = 24
	newestHost = 37
)

// rulesOf returns the rules of a minor version of Kubernetes 1.
func rulesOf(minor int) hostRules {
	rules := hostRules{
		latestFromCache:  minor >= 31,
		limitFromCache:   minor >= 31,
		snapshots:        minor >= 34,
		selectableFields: minor >= 31,
	}
	switch {
	case minor < 27:
	case minor == 32 || minor >= 34:
		rules.watchList = watchListOn
	default:
		rules.watchList = watchListOff
	}
	return rules
}

// minorOf reads a version: the one whose behaviour the server emulates, if it is told to,
// as feature gates follow that (k8s.io/component-base compatibility). Distributions write a
// minor version as "31+".
func minorOf(info *version.Info) (minor int, ok bool) {
	majorText, minorText := info.Major, info.Minor
	if info.EmulationMajor != "" && info.EmulationMinor != "" {
		majorText, minorText = info.EmulationMajor, info.EmulationMinor
	}
	minor, err := strconv.Atoi(strings.TrimSuffix(minorText, "+"))
	return minor, err == nil && majorText == "1"
}

// versionOf names a version, and the one that it emulates if that is another.
func versionOf(info *version.Info) string {
	emulated := info.EmulationMajor + "." + info.EmulationMinor
	if emulated == "." || emulated == info.Major+"."+strings.TrimSuffix(info.Minor, "+") {
		return info.GitVersion
	}
	return fmt.Sprintf("%s (emulating %s)", info.GitVersion, emulated)
}

// explanation is a rule in plain words, for a watch with what becomes of its sendInitialEvents.
func (r hostRules) explanation(rule annexed.Rule, options metainternalversion.ListOptions) string {
	words := explanation(rule)
	switch {
	case !options.Watch:
		return words
	case r.watchList == watchListOff:
		return "By default this version refuses a watch that begins with the objects, as its feature gate WatchList is off. If it is on: " + words
	case r.watchList == watchListOn:
		return words
	}
	if rule == annexed.RuleWatch {
		words = "The cache serves watches."
	}
	if options.ResourceVersion == "" || options.ResourceVersion == "0" {
		return words + " This version ignores sendInitialEvents and begins with the objects, as every watch does without a resourceVersion."
	}
	return words + " This version ignores sendInitialEvents and begins after resourceVersion, without the objects that there are."
}

// decide is what a kube-apiserver does with a list that it accepts, as far as
// its rules tell. The source is empty where the rules leave it open. A single object is one whose name and namespace
// are given, so that it is read by its key.
func (r hostRules) decide(resource schema.GroupResource, options metainternalversion.ListOptions, single bool) annexed.Reading {
	reading := annexed.Reading{Total: -1, Scanned: -1, Returned: -1}
	reading.Rule, reading.Source = r.rule(resource, options, single)
	if reading.Source == annexed.SourceCache && reading.Rule != annexed.RuleWatch {
		// computeListLimit in cacher.go; before 1.31 nothing else reaches a cache with a limit.
		reading.LimitIgnored = options.Limit > 0 && options.ResourceVersion == "0" && !single
	}
	if reading.Source == annexed.SourceCache {
		reading.Index = hostIndex(resource, options)
	}
	return reading
}

func (r hostRules) rule(resource schema.GroupResource, options metainternalversion.ListOptions, single bool) (annexed.Rule, annexed.Source) {
	switch match, limited := options.ResourceVersionMatch, options.Limit > 0 && options.ResourceVersion != "0"; {
	case isUncached(resource):
		return annexed.RuleNoCache, annexed.SourceEtcd
	case options.Watch:
		return annexed.RuleWatch, r.watchSource()
	case options.Continue != "":
		return r.furtherPage(options.Continue)
	case match == metav1.ResourceVersionMatchExact, limited && match == "" && options.ResourceVersion != "":
		if single { // Cacher.ShouldDelegateExactRV
			return annexed.RuleExactFromEtcd, annexed.SourceEtcd
		}
		return r.snapshot(annexed.RuleExact, annexed.RuleExactFromEtcd)
	case options.ResourceVersion == "" && r.latestFromCache:
		return annexed.RuleLatest, annexed.SourceCache
	case options.ResourceVersion == "":
		return annexed.RuleLatestFromEtcd, annexed.SourceEtcd
	case options.ResourceVersion == "0":
		return annexed.RuleAny, annexed.SourceCache
	case limited && !r.limitFromCache:
		return ruleNotOlderThanFromEtcd, annexed.SourceEtcd
	default:
		return annexed.RuleNotOlderThan, annexed.SourceCache
	}
}

// furtherPage is the rule of a continue token.
func (r hostRules) furtherPage(token string) (annexed.Rule, annexed.Source) {
	switch {
	case !annexed.ContinuesLatest(token):
		return r.snapshot(annexed.RuleContinue, annexed.RuleContinueFromEtcd)
	case r.snapshots:
		return annexed.RuleLatest, annexed.SourceCache
	default:
		return annexed.RuleLatestFromEtcd, annexed.SourceEtcd
	}
}

// snapshot is the rule of a version with snapshots, which may or may not have the
// one that is asked for, or of one without.
func (r hostRules) snapshot(with, without annexed.Rule) (annexed.Rule, annexed.Source) {
	if r.snapshots {
		return with, ""
	}
	return without, annexed.SourceEtcd
}

func (r hostRules) watchSource() annexed.Source {
	if r.watchList == watchListOff {
		return ""
	}
	return annexed.SourceCache
}

// isUncached reports the resources that kube-apiserver has no cache of by default
// (k8s.io/kubernetes pkg/kubeapiserver/default_storage_factory_builder.go, DefaultWatchCacheSizes).
func isUncached(resource schema.GroupResource) bool {
	return resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io")
}

func isPods(resource schema.GroupResource) bool {
	return resource.Group == "" && resource.Resource == "pods"
}

// hostIndex is the index of kube-apiserver that a selector uses
// (k8s.io/kubernetes pkg/registry/core/pod/strategy.go, Indexers).
func hostIndex(resource schema.GroupResource, options metainternalversion.ListOptions) string {
	if !isPods(resource) {
		return ""
	}
	if _, ok := fieldsOf(options).RequiresExactMatch(fieldNodeName); !ok {
		return ""
	}
	return "f:" + fieldNodeName
}

// isBuiltIn reports whether kube-apiserver itself has the group.
func isBuiltIn(group string) bool {
	return slices.Contains([]string{
		"", "apps", "autoscaling", "batch", "extensions", "policy",
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
		"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
	}, group)
}
