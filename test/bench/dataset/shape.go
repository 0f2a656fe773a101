// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"
	"maps"
	"net/url"
)

// Shape is how objects are spread. The same shape gives the same objects.
type Shape struct {
	Seed uint64
	// Nodes and Namespaces are over how many the objects are spread, at least 1.
	// With Namespaces below Nodes, the objects of a node are in several namespaces.
	Nodes, Namespaces int
}

// NodeName is the name of the n-th node.
func NodeName(n int) string { return fmt.Sprintf("node-%04d", n) }

// NamespaceName is the name of the n-th namespace.
func NamespaceName(n int) string { return fmt.Sprintf("bench-%02d", n) }

// AppName is the n-th value of AppLabel.
func AppName(n int) string { return fmt.Sprintf("app-%02d", n) }

// Node is the number of the node of object i.
func (s Shape) Node(i int) int { return i % s.Nodes }

// Namespace is the number of the namespace of object i. It moves on with each turn
// over the nodes, so that no node belongs to one namespace.
func (s Shape) Namespace(i int) int { return (i + i/s.Nodes) % s.Namespaces }

// App is the number of the value of AppLabel of object i.
func (s Shape) App(i int) int { return (i + 3*(i/s.Nodes)) % Apps }

// ObjectName is the name of object i. Names of a kind sort as their numbers.
func ObjectName(kind Kind, i int) string { return fmt.Sprintf("%s-%07d", kind.Singular(), i) }

// Selection is a part of the objects of a kind, as a request selects it.
type Selection struct {
	// Namespace is empty for all namespaces.
	Namespace string
	// FieldSelector and LabelSelector are query parameters, or empty.
	FieldSelector, LabelSelector string

	matches func(i int) bool
}

// All selects every object.
func (s Shape) All() Selection { return Selection{matches: func(int) bool { return true }} }

// OnNode selects the objects of the n-th node by field.
func (s Shape) OnNode(n int) Selection {
	return Selection{
		FieldSelector: NodeField + "=" + NodeName(n),
		matches:       func(i int) bool { return s.Node(i) == n },
	}
}

// OnLabeledNode selects the same objects as OnNode by label.
func (s Shape) OnLabeledNode(n int) Selection {
	selection := s.OnNode(n)
	selection.FieldSelector, selection.LabelSelector = "", NodeLabel+"="+NodeName(n)
	return selection
}

// InNamespace selects the objects of the n-th namespace.
func (s Shape) InNamespace(n int) Selection {
	return Selection{Namespace: NamespaceName(n), matches: func(i int) bool { return s.Namespace(i) == n }}
}

// OfApp selects the objects of the n-th application by label.
func (s Shape) OfApp(n int) Selection {
	return Selection{
		LabelSelector: AppLabel + "=" + AppName(n),
		matches:       func(i int) bool { return s.App(i) == n },
	}
}

// Indexes are the numbers of the selected objects among the first count.
func (s Selection) Indexes(count int) []int {
	var selected []int
	for i := range count {
		if s.matches(i) {
			selected = append(selected, i)
		}
	}
	return selected
}

// Count is how many of the first count objects are selected.
func (s Selection) Count(count int) int { return len(s.Indexes(count)) }

// Path is the path and query of a LIST of the selection. Extra query parameters,
// such as resourceVersion, are added to it; extra may be nil.
func (s Selection) Path(group, version string, kind Kind, extra url.Values) string {
	query := url.Values{}
	maps.Copy(query, extra)
	if s.FieldSelector != "" {
		query.Set("fieldSelector", s.FieldSelector)
	}
	if s.LabelSelector != "" {
		query.Set("labelSelector", s.LabelSelector)
	}
	path := CollectionPath(group, version, kind, s.Namespace)
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}
