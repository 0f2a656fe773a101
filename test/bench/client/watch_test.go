// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWatchNext(t *testing.T) {
	type event struct{ Type, Name, Seen string }
	const managed = `"managedFields":[{"manager":"a","fieldsV1":{"f:status":{"f:lastSeen":{}},"name":"no"}}]`
	modified := `{"type":"MODIFIED","object":{"kind":"E","metadata":{` + managed + `,"name":"e-1","uid":"u"},"spec":{"ports":[{"name":"http"}]},"status":{"lastSeen":"7"}}}` + "\n"
	for name, tc := range map[string]struct {
		stream    string
		want      []event
		wantError string
	}{
		"events and a bookmark": {
			stream: modified + `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}` + "\n" + modified,
			want:   []event{{"MODIFIED", "e-1", "7"}, {Type: "BOOKMARK"}, {"MODIFIED", "e-1", "7"}},
		},
		"a frame longer than the buffer": {
			stream: `{"type":"ADDED","object":{"a":"` + strings.Repeat("x\\\"}", 10_000) + `","metadata":{"name":"long"}}}` + "\n" + modified,
			want:   []event{{"ADDED", "long", ""}, {"MODIFIED", "e-1", "7"}},
		},
		"the type comes last": {
			stream: `{"object":{"metadata":{"name":"e-2"}},"type":"DELETED"}` + "\n",
			want:   []event{{"DELETED", "e-2", ""}},
		},
		"an error": {
			stream:    modified + `{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n",
			want:      []event{{"MODIFIED", "e-1", "7"}},
			wantError: `the watch ended: {"type":"ERROR","object":{"kind":"Status","code":410}}`,
		},
		"cut in a frame":     {stream: modified[:40], wantError: "reading a watch: EOF"},
		"a frame is damaged": {stream: modified[:40] + "\n", wantError: errNoEvent.Error()},
		"no object":          {stream: `{"type":"ADDED"}` + "\n", wantError: errNoEvent.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			watch := newWatch(io.NopCloser(strings.NewReader(tc.stream)))
			var got []event
			var err error
			for {
				var e Event
				if e, err = watch.Next(); err != nil {
					break
				}
				got = append(got, event{e.Type, e.Text("metadata", "name"), e.Text("status", "lastSeen")})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events differ (-want +got):\n%s", diff)
			}
			if tc.wantError == "" && !errors.Is(err, io.EOF) || tc.wantError != "" && err.Error() != tc.wantError {
				t.Errorf("the error is %q, wanted is %q", err, tc.wantError)
			}
		})
	}
}
