// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeannex/annex/pkg/digest"
)

func TestIsCanonical(t *testing.T) {
	tests := map[string]struct {
		content string
		want    bool
	}{
		"an object":                          {`{"a":1,"b":[true,false,null,"x",{}],"c":{"d":[]}}`, true},
		"numbers":                            {`{"a":0,"b":-1,"c":123456789012345678}`, true},
		"escapes":                            {`{"a":"\"\\\n\r\t\u003c\u003e\u0026\u2028\u2029"}`, true},
		"text of other alphabets":            {`{"a":"ä€𝄞","ä":1}`, true},
		"a field of that name elsewhere":     {`{"metadata":{"labels":{"resourceVersion":"1"}},"spec":{"resourceVersion":"1"}}`, true},
		"a resource version":                 {`{"metadata":{"resourceVersion":"1"}}`, false},
		"keys that are not sorted":           {`{"b":1,"a":1}`, false},
		"a key that is there twice":          {`{"a":1,"a":1}`, false},
		"a key with an escape":               {`{"\n":1}`, false},
		"a space":                            {`{"a": 1}`, false},
		"a line break at the end":            {"{}\n", false},
		"a character that must be escaped":   {`{"a":"<"}`, false},
		"an escape that is not needed":       {`{"a":"\u0041"}`, false},
		"a slash that is escaped":            {`{"a":"\/"}`, false},
		"an escape in capitals":              {`{"a":"\u003C"}`, false},
		"a line separator":                   {"{\"a\":\"\u2028\"}", false},
		"a control character":                {"{\"a\":\"\x01\"}", false},
		"broken text":                        {"{\"a\":\"\xff\"}", false},
		"a fraction":                         {`{"a":1.5}`, false},
		"a power":                            {`{"a":1e3}`, false},
		"a leading zero":                     {`{"a":01}`, false},
		"a negative zero":                    {`{"a":-0}`, false},
		"a number that may be too large":     {`{"a":1234567890123456789}`, false},
		"half an object":                     {`{"a":`, false},
		"nothing":                            {"", false},
		"more after the end":                 {"{}{}", false},
		"nesting that is deeper than looked": {strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isCanonical([]byte(tc.content)); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.content, got, tc.want)
			}
		})
	}
}

// FuzzIsCanonical checks the promise: what is called canonical is what decoding and encoding makes of it.
func FuzzIsCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[true,false,null,"x",{}],"metadata":{"name":"a"}}`, `{"metadata":{"resourceVersion":"1"}}`,
		`{"a":"\u003c\\\"\n"}`, `{"a":-10,"b":1.5e3}`, `{"\u0041":1}`, "{\"a\":\"\u2028\u20ac\"}", `{"a":"\b\f"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if !isCanonical(content) || content[0] != '{' {
			return
		}
		var object map[string]any
		if err := utiljson.Unmarshal(content, &object); err != nil {
			t.Fatalf("%q is no JSON: %v", content, err)
		}
		canonical, err := digest.Canonical(object)
		if err != nil {
			t.Fatal(err)
		}
		if string(canonical) != string(content) {
			t.Errorf("%q is not canonical, %q is", content, canonical)
		}
	})
}

func BenchmarkEntryOf(b *testing.B) {
	plain := []byte(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"annotations":{"filler":"` + strings.Repeat("x", 1000) +
		`"},"creationTimestamp":"2020-01-02T03:04:05Z","generation":7,"name":"g","namespace":"t","uid":"u"},"spec":{"color":"red","size":1}}`)
	for name, content := range map[string][]byte{
		"canonical": plain,
		"decoded":   []byte(strings.Replace(string(plain), `"size":1`, `"size":1.5`, 1)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				if _, err := entryOf(content); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
