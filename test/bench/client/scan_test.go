// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScan(t *testing.T) {
	const metadata = `"metadata":{"resourceVersion":"7","continue":"a\"b"}`
	for name, tc := range map[string]struct {
		body string
		want List
		fail bool
	}{
		"items last": {
			body: `{"apiVersion":"v1","kind":"L",` + metadata + `,"items":[{"a":[{},{}]},{"b":{"c":"}]"}}]}` + "\n",
			want: List{Items: 2, Continue: `a"b`, ResourceVersion: "7"},
		},
		"items first": {
			body: `{"items":[{"a":1},{},{"a":"\\"}],` + metadata + `}`,
			want: List{Items: 3, Continue: `a"b`, ResourceVersion: "7"},
		},
		"no items": {
			body: `{"items":[],"metadata":{"resourceVersion":"7"}}`,
			want: List{ResourceVersion: "7"},
		},
		"a status":          {body: `{"kind":"Status","metadata":{},"status":"Failure"}`, fail: true},
		"cut in an item":    {body: `{` + metadata + `,"items":[{"a":1},{"a":`, fail: true},
		"cut after an item": {body: `{` + metadata + `,"items":[{"a":1}`, fail: true},
		"cut in a string":   {body: `{` + metadata + `,"items":[{"a":"x\"`, fail: true},
		"cut in a key":      {body: `{` + metadata + `,"ite`, fail: true},
		"last brace is gone": {
			body: `{` + metadata + `,"items":[{"a":1}]`, fail: true,
		},
		"nothing": {fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Scan([]byte(tc.body))
			if (err != nil) != tc.fail {
				t.Fatalf("Scan() = %+v, error %v, want an error: %t", got, err, tc.fail)
			}
			if tc.fail {
				return
			}
			tc.want.Bytes = len(tc.body)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Scan() differs (-want +got):\n%s", diff)
			}
		})
	}
}
