// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// The reasons of advice. docs/explain.md lists them.
const (
	adviceLimitIgnored       = "LimitIgnored"
	adviceNotOlderThan       = "NotOlderThan"
	adviceNewerVersion       = "NewerVersion"
	adviceStartAgain         = "StartAgain"
	adviceUseCache           = "UseCache"
	adviceAskForNamespace    = "AskForNamespace"
	adviceFieldNotSelectable = "FieldNotSelectable"
	adviceIndexField         = "IndexField"
	adviceIndexLabel         = "IndexLabel"
	adviceSelectExactly      = "SelectExactly"
	adviceAdoptGroup         = "AdoptGroup"
	adviceUseInformer        = "UseInformer"
	advicePaginate           = "Paginate"
)

const (
	// cheapObjects is how many objects a list may read before there is anything
	// to say about it: a page of kubectl.
	cheapObjects = 500
	// wasteFactor is how many objects are read for one that is returned before an index is worth it.
	wasteFactor = 10
)

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
	fieldNodeName  = "spec.nodeName"
)

// situation is all that advice follows from.
type situation struct {
	request    *Request
	options    metainternalversion.ListOptions
	reading    annexed.Reading
	definition Definition
	// host describes the cluster if it keeps the resource.
	host *hostKind
}

// hostKind is what is known of a resource of the cluster.
type hostKind struct {
	rules   hostRules
	builtIn bool
}

// advise returns the best first, and nothing for a list that is cheap.
func advise(s situation) []kubeannex.ListAdvice {
	var all []kubeannex.ListAdvice
	for _, advice := range []func(situation) (reason, message string){
		limitIgnored, exactVersion, useCacheNotEtcd, askForSelectedNamespace,
		fieldNotSelectable, indexField, indexLabel, selectExactly, adoptGroup,
		useInformer, paginate, askForNamespace, useCacheAtOnce,
	} {
		if reason, message := advice(s); reason != "" {
			all = append(all, kubeannex.ListAdvice{Reason: reason, Message: message})
		}
	}
	return all
}

func limitIgnored(s situation) (reason, message string) {
	if !s.reading.LimitIgnored || s.reading.Returned >= 0 && s.reading.Returned <= s.options.Limit {
		return "", ""
	}
	return adviceLimitIgnored, fmt.Sprintf("resourceVersion 0 returns everything, whatever the limit: remove resourceVersion to get pages of %d.", s.options.Limit)
}

func exactVersion(s situation) (reason, message string) {
	switch s.reading.Rule {
	case annexed.RuleExactFromEtcd, annexed.RuleExact:
		if s.reading.Source == annexed.SourceCache {
			return "", ""
		}
		if s.options.ResourceVersionMatch == "" {
			return adviceNotOlderThan, "A limit with a resourceVersion asks for exactly that version: resourceVersionMatch=NotOlderThan lets the cache answer, or remove resourceVersion."
		}
		return adviceNewerVersion, "The cache keeps the last minutes: it answers for the resourceVersion of a newer list."
	case ruleNotOlderThanFromEtcd:
		return adviceUseCache, "Remove the limit, or ask for resourceVersion 0, to be answered by the cache."
	case annexed.RuleContinueFromEtcd:
		if s.host != nil && !s.host.rules.snapshots {
			return "", ""
		}
		return adviceStartAgain, "The first page is older than what the cache keeps: read the pages without a pause, or begin again."
	default:
		return "", ""
	}
}

// useCacheNotEtcd is for lists of the latest state that the cache cannot answer.
func useCacheNotEtcd(s situation) (reason, message string) {
	if s.reading.Source != annexed.SourceEtcd || s.options.ResourceVersion != "" || s.options.Continue != "" || s.cheap() {
		return "", ""
	}
	if s.reading.Rule != annexed.RuleLatestFromEtcd && s.reading.Rule != annexed.RuleNotReady {
		return "", ""
	}
	message = "resourceVersion=0 is answered by the cache: take it if a state that is a little old will do."
	if s.options.Limit > 0 {
		message = "resourceVersion=0 is answered by the cache, though whole and not in pages: take it if a state that is a little old will do."
	}
	return adviceUseCache, message
}

// useCacheAtOnce is for what node agents and the like ask again and again.
func useCacheAtOnce(s situation) (reason, message string) {
	if s.reading.Rule != annexed.RuleLatest || !s.selective() || s.options.Limit > 0 || s.cheap() {
		return "", ""
	}
	return adviceUseCache, "resourceVersion=0 saves the question to etcd: take it in an agent that can live with a state that is a little old."
}

func askForSelectedNamespace(s situation) (reason, message string) {
	if !s.definition.Namespaced || s.request.Info.Namespace != "" || s.cheap() {
		return "", ""
	}
	namespace, ok := fieldsOf(s.options).RequiresExactMatch(fieldNamespace)
	if !ok {
		return "", ""
	}
	return adviceAskForNamespace, fmt.Sprintf("List namespace %s by its path instead of the field: only its objects are read then.", namespace)
}

func askForNamespace(s situation) (reason, message string) {
	if !s.definition.Namespaced || s.request.Info.Namespace != "" || !s.everything() || s.cheap() {
		return "", ""
	}
	return adviceAskForNamespace, "If one namespace is enough, list that: only its objects are read then."
}

func fieldNotSelectable(s situation) (reason, message string) {
	if s.host == nil || s.host.builtIn {
		return "", ""
	}
	field := customField(s.request.Resource().GroupResource(), s.options)
	if field == "" {
		return "", ""
	}
	return adviceFieldNotSelectable, fmt.Sprintf(
		"Unless the definition names %s among its selectableFields the server refuses the list: add it there, or select by a label.", field)
}

func indexField(s situation) (reason, message string) {
	if s.host != nil || !s.wasteful() || s.reading.Source != annexed.SourceCache || s.reading.Index != "" {
		return "", ""
	}
	for _, requirement := range fieldsOf(s.options).Requirements() {
		field := requirement.Field
		exact := requirement.Operator == selection.Equals || requirement.Operator == selection.DoubleEquals
		if exact && slices.Contains(s.definition.Fields, field) {
			return adviceIndexField, fmt.Sprintf(
				"%s has no index, as a resource has at most %d: name it as watchIndex.field of %s in the AnnexedGroup %s, or move it forward in selectableFields.",
				field, annexed.MaxIndexes, s.request.Info.Resource, s.request.Info.APIGroup)
		}
	}
	return "", ""
}

func indexLabel(s situation) (reason, message string) {
	if s.host != nil || !s.wasteful() {
		return "", ""
	}
	key, ok := exactLabel(s.options, s.definition.hasLabelIndex)
	if !ok {
		return "", ""
	}
	return adviceIndexLabel, fmt.Sprintf("Index the label %s: add it to spec.resources[].indexLabels of %s in the AnnexedGroup %s.",
		key, s.request.Info.Resource, s.request.Info.APIGroup)
}

// selectExactly is for selectors no index can answer.
func selectExactly(s situation) (reason, message string) {
	if s.host != nil || !s.wasteful() || s.reading.Index != "" {
		return "", ""
	}
	if _, ok := exactLabel(s.options, func(string) bool { return false }); ok {
		return "", ""
	}
	for _, requirement := range fieldsOf(s.options).Requirements() {
		if requirement.Operator != selection.NotEquals {
			return "", ""
		}
	}
	return adviceSelectExactly, "Only a selector that asks for one value can use an index: !=, notin, and in with several values compare every object."
}

func adoptGroup(s situation) (reason, message string) {
	if s.host == nil || s.host.builtIn || s.reading.Source == annexed.SourceEtcd && s.options.Continue != "" {
		return "", ""
	}
	key, ok := exactLabel(s.options, func(string) bool { return false })
	if !ok {
		return "", ""
	}
	return adviceAdoptGroup, fmt.Sprintf("kube-apiserver has no index of labels: once annex has adopted %s, the label %s can have one (kubectl annex adopt).",
		s.request.Info.APIGroup, key)
}

func useInformer(s situation) (reason, message string) {
	if !s.everything() || s.options.Limit > 0 || s.cheap() {
		return "", ""
	}
	return adviceUseInformer, "A client that needs this again and again should keep an informer: it lists once and is told of changes."
}

func paginate(s situation) (reason, message string) {
	rule := s.reading.Rule
	if !s.everything() || s.options.Limit > 0 || s.cheap() || rule != annexed.RuleLatest && rule != annexed.RuleLatestFromEtcd && rule != annexed.RuleNoCache {
		return "", ""
	}
	return advicePaginate, fmt.Sprintf("Read it in pages, limit=%d: no answer is so big then that server and client hold it at once.", cheapObjects)
}

// cheap says that the list reads little enough not to be changed, or that nothing is known of
// what it reads. Of a list of the cluster that never is: what helps most lists is said of each.
func (s situation) cheap() bool {
	if name, ok := fieldsOf(s.options).RequiresExactMatch(fieldName); ok && name != "" && (s.request.Info.Namespace != "" || !s.definition.Namespaced) {
		return true
	}
	reads := s.reading.Scanned
	if s.reading.Rule == annexed.RuleWatch {
		reads = s.reading.Total
	}
	if reads < 0 {
		return s.host == nil
	}
	return reads <= cheapObjects
}

// wasteful says that far more is read than returned, as far as that is known.
func (s situation) wasteful() bool {
	if s.cheap() || !s.selective() || s.reading.Rule == annexed.RuleWatch {
		return false
	}
	return s.reading.Returned < 0 || s.reading.Returned*wasteFactor <= s.reading.Scanned
}

func (s situation) selective() bool {
	return !fieldsOf(s.options).Empty() || !labelsOf(s.options).Empty()
}

// everything says that the list, or its first page, is of all objects in its scope.
func (s situation) everything() bool {
	return !s.selective() && s.options.Continue == "" && s.options.ResourceVersionMatch != metav1.ResourceVersionMatchExact && !s.options.Watch
}

func fieldsOf(options metainternalversion.ListOptions) fields.Selector {
	if options.FieldSelector == nil {
		return fields.Everything()
	}
	return options.FieldSelector
}

func labelsOf(options metainternalversion.ListOptions) labels.Selector {
	if options.LabelSelector == nil {
		return labels.Everything()
	}
	return options.LabelSelector
}

// exactLabel is the first label of which one value is selected, and which is not left out.
func exactLabel(options metainternalversion.ListOptions, without func(string) bool) (key string, ok bool) {
	selector := labelsOf(options)
	requirements, _ := selector.Requirements()
	for i := range requirements {
		key := requirements[i].Key()
		if _, exact := selector.RequiresExactMatch(key); exact && !without(key) {
			return key, true
		}
	}
	return "", false
}
