// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// maxParsed is the length up to which selectors are parsed, in bytes.
const maxParsed = 4096

// shapeOf is what a request selects by, without values: namespace, name, then the
// labels, then the fields, such as "namespace,app=,!canary,spec.nodeName=". It is
// empty for everything.
func shapeOf(info *genericapirequest.RequestInfo) string {
	scope := ""
	switch namespaced := info.Namespace != ""; {
	case namespaced && info.Verb == "get":
		scope = "namespace,name"
	case namespaced:
		scope = "namespace"
	case info.Verb == "get":
		scope = "name"
	}
	if info.LabelSelector == "" && info.FieldSelector == "" {
		return scope
	}
	var parts []string
	if scope != "" {
		parts = append(parts, scope)
	}
	parts = append(parts, shapeOfLabels(info.LabelSelector)...)
	parts = append(parts, shapeOfFields(info.FieldSelector)...)
	return bounded(strings.Join(parts, ","), maxSelector)
}

func shapeOfLabels(selector string) []string {
	if len(selector) > maxParsed {
		return []string{"<long labels>"}
	}
	requirements, err := labels.ParseToRequirements(selector)
	if err != nil {
		return []string{"<malformed labels>"}
	}
	shapes := make([]string, 0, len(requirements))
	for i := range requirements {
		shapes = append(shapes, shapeOfRequirement(requirements[i].Key(), requirements[i].Operator()))
	}
	return sorted(shapes)
}

func shapeOfFields(selector string) []string {
	if len(selector) > maxParsed {
		return []string{"<long fields>"}
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return []string{"<malformed fields>"}
	}
	var shapes []string
	for _, requirement := range parsed.Requirements() {
		shapes = append(shapes, shapeOfRequirement(requirement.Field, requirement.Operator))
	}
	return sorted(shapes)
}

func shapeOfRequirement(key string, operator selection.Operator) string {
	switch operator {
	case selection.Equals, selection.DoubleEquals:
		return key + "="
	case selection.NotEquals:
		return key + "!="
	case selection.Exists:
		return key
	case selection.DoesNotExist:
		return "!" + key
	case selection.GreaterThan:
		return key + ">"
	case selection.LessThan:
		return key + "<"
	default:
		return key + " " + string(operator)
	}
}

// sorted orders shapes and names each of them once.
func sorted(shapes []string) []string {
	slices.Sort(shapes)
	return slices.Compact(shapes)
}
