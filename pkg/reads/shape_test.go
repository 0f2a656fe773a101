// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"fmt"
	"strings"
	"testing"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestShape(t *testing.T) {
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("key%02d=v", i))
	}
	tests := map[string]struct {
		verb, namespace, labels, fields string

		want string
	}{
		"everything":              {verb: "list"},
		"a namespace":             {verb: "list", namespace: "prod", want: "namespace"},
		"one object":              {verb: "get", namespace: "prod", want: "namespace,name"},
		"one cluster-wide object": {verb: "get", want: "name"},
		"labels and fields": {
			verb: "watch", namespace: "prod", labels: "app=x", fields: "spec.nodeName=n1",
			want: "namespace,app=,spec.nodeName=",
		},
		"every operator of labels": {
			verb: "list", labels: "a=1,b==2,c!=3,d in (4,5),e notin (6),f,!g,h>1,i<2",
			want: "!g,a=,b=,c!=,d in,e notin,f,h>,i<",
		},
		"every operator of fields":     {verb: "list", fields: "c!=3,b==2,a=1,d=", want: "a=,b=,c!=,d="},
		"the order does not matter":    {verb: "list", labels: "b=1,a=2", want: "a=,b="},
		"a key that is named twice":    {verb: "list", labels: "a!=1,a!=2,a!=3", want: "a!="},
		"the name as a field":          {verb: "list", fields: "metadata.name=x", want: "metadata.name="},
		"a value with a comma":         {verb: "list", fields: `a=x\,y`, want: "a="},
		"malformed":                    {verb: "list", labels: "a=(", fields: "nothing", want: "<malformed labels>,<malformed fields>"},
		"long":                         {verb: "list", labels: strings.Repeat("a", 5000), fields: "f=" + strings.Repeat("a", 5000), want: "<long labels>,<long fields>"},
		"more keys than fit":           {verb: "list", labels: strings.Join(many, ","), want: shapeOfMany()},
		"a field that is no real text": {verb: "list", fields: "a\x1b[31m=1", want: "a?[31m="},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			info := &genericapirequest.RequestInfo{Verb: tc.verb, Namespace: tc.namespace, LabelSelector: tc.labels, FieldSelector: tc.fields}
			if got := shapeOf(info); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// shapeOfMany is the shape of 50 keys, cut at the bound.
func shapeOfMany() string {
	var keys strings.Builder
	for i := range 50 {
		fmt.Fprintf(&keys, "key%02d=,", i)
	}
	return keys.String()[:maxSelector-3] + "..."
}
