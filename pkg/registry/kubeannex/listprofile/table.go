// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listprofile

import (
	"context"
	"fmt"
	"strings"

	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

var _ rest.TableConvertor = TableConvertor{}

// TableConvertor prints ListProfiles for `kubectl get`.
type TableConvertor struct{}

// ConvertToTable returns one row for a ListProfile or for each item of a list. It
// fails for objects of another type.
func (TableConvertor) ConvertToTable(_ context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		table.ColumnDefinitions = columns()
	}
	switch typed := object.(type) {
	case *kubeannex.ListProfile:
		table.Rows = []metav1.TableRow{row(typed)}
	case *kubeannex.ListProfileList:
		for i := range typed.Items {
			table.Rows = append(table.Rows, row(&typed.Items[i]))
		}
	default:
		return nil, fmt.Errorf("printing ListProfiles: got a %T", object)
	}
	return table, nil
}

// wide is the priority of columns that `kubectl get --output=wide` shows.
const wide = 1

func columns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Client", Type: "string", Description: "The family of user agents. (others) adds up profiles that had to make room."},
		{Name: "User", Type: "string", Description: "The name of the user. All nodes are one."},
		{Name: "Verb", Type: "string", Description: "get, list or watch."},
		{Name: "Resource", Type: "string", Description: "The resource and its group."},
		{Name: "Selector", Type: "string", Description: "What the reads select by, without values."},
		{Name: "Source", Type: "string", Description: "What the reads were served from."},
		{Name: "Count", Type: "integer", Description: "The number of requests."},
		{Name: "Scanned", Type: "integer", Description: "The number of objects that were compared with selectors or returned."},
		{Name: "Returned", Type: "integer", Description: "The number of objects in the answers."},
		{Name: "Bytes", Type: "integer", Description: "The size of the answers."},
		{Name: "Last Seen", Type: "string", Description: "The time since the last request."},
		{Name: "Version", Type: "string", Description: "The version of the resource.", Priority: wide},
		{Name: "Index", Type: "string", Description: "The index that was read.", Priority: wide},
		{Name: "Failed", Type: "integer", Description: "The number of requests that were answered with an error or broken off.", Priority: wide},
		{Name: "Client Version", Type: "string", Description: "The version of the client that was seen last.", Priority: wide},
		{Name: "Name", Type: "string", Format: "name", Description: "The name of the profile.", Priority: wide},
	}
}

func row(object *kubeannex.ListProfile) metav1.TableRow {
	profile := &object.Profile
	return metav1.TableRow{
		Cells: []any{
			orNone(profile.Client), orNone(profile.User), profile.Verb,
			resourceOf(profile), orNone(profile.Selector), orNone(string(profile.Source)),
			profile.Count, profile.Scanned, profile.Returned, profile.Bytes,
			metatable.ConvertToHumanReadableDateType(profile.LastSeen),
			profile.Version, orNone(profile.Index), profile.Failed, orNone(profile.ClientVersion), object.Name,
		},
		Object: runtime.RawExtension{Object: object},
	}
}

// resourceOf is a resource with its group, and behind those the subresource.
func resourceOf(profile *kubeannex.ListProfileRow) string {
	resource, subresource, isSub := strings.Cut(profile.Resource, "/")
	resource += "." + profile.Group
	if isSub {
		resource += "/" + subresource
	}
	return resource
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}
