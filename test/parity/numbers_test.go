// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// numbers are literals in order of their names, as they come back: integers as
// they were sent, others in the shortest form of the same double.
var numbers = []struct{ name, sent, want string }{
	{"a-most", "9223372036854775807", "9223372036854775807"},
	{"b-least", "-9223372036854775808", "-9223372036854775808"},
	{"c-past-double", "9007199254740993", "9007199254740993"},
	{"d-plain", "1000000009", "1000000009"},
	{"e-tenth", "0.1", "0.1"},
	{"f-exponent", "1e2", "100"},
	{"g-zero", "0", "0"},
	{"h-float", "1.0", "1"},
	{"i-past-int64", "9223372036854775808", "9223372036854776000"},
	{"j-small", "1e-7", "1e-7"},
	{"k-large", "1e21", "1e+21"},
	{"l-negative", "-1.5", "-1.5"},
}

var literal = regexp.MustCompile(`"([a-l]-[a-z0-9-]+)":\s*([^,}\s]+)`)

// wantNumbers demands the literals of numbers in an answer, byte for byte.
func (r *response) wantNumbers(body []byte) {
	r.t.Helper()
	// Managed fields have the same names with another prefix, which the pattern does not match.
	got := map[string]string{}
	for _, match := range literal.FindAllStringSubmatch(string(body), -1) {
		got[match[1]] = match[2]
	}
	for _, number := range numbers {
		if got[number.name] != number.want {
			r.t.Errorf("%s: %s was sent as %s and is %s, want %s", r.name, number.name, number.sent, got[number.name], number.want)
		}
	}
}

// TestNumbersKeepPrecision reproduces kubernetes/kubernetes 30213: every integer of 64 bits is
// exact after every step.
func TestNumbersKeepPrecision(t *testing.T) {
	var fields []string
	for _, number := range numbers {
		fields = append(fields, fmt.Sprintf("%q:%s", number.name, number.sent))
	}
	spec := "{" + strings.Join(fields, ",") + "}"
	compare(t, func(s *session) {
		planets := fixturePath + "/planets"
		path := planets + "/numbers"
		since := s.peek(http.MethodGet, planets).want(http.StatusOK).version()
		check := func(r *response) *response {
			s.t.Helper()
			r.wantNumbers(r.body)
			return r
		}
		check(s.do("create", http.MethodPost, planets, object("Planet", "numbers", spec)).want(http.StatusCreated))
		check(s.do("GET", http.MethodGet, path, "").want(http.StatusOK))
		check(s.do("GET from the cache", http.MethodGet, path+"?resourceVersion="+s.peek(http.MethodGet, path).version(), "").want(http.StatusOK))
		check(s.do("JSON patch of another field", http.MethodPatch, path, `[{"op":"add","path":"/spec/z","value":9007199254740993}]`, "Content-Type", jsonPatch).want(http.StatusOK))
		check(s.do("merge patch of another field", http.MethodPatch, path, `{"spec":{"y":9223372036854775807}}`, "Content-Type", mergePatch).want(http.StatusOK)).
			wantField(int64(9223372036854775807), "spec", "y").wantField(int64(9007199254740993), "spec", "z")
		body := check(s.do("GET before PUT", http.MethodGet, path, "")).body
		check(s.do("PUT the same", http.MethodPut, path, string(body)).want(http.StatusOK))
		check(s.do("apply another field", http.MethodPatch, path+"?fieldManager=m", object("Planet", "numbers", `{"x":-9223372036854775808}`), "Content-Type", applyPatch).want(http.StatusOK))
		check(s.do("apply the numbers", http.MethodPatch, path+"?fieldManager=n&force=true", object("Planet", "numbers", spec), "Content-Type", applyPatch).want(http.StatusOK))
		check(s.do("test a number by JSON patch", http.MethodPatch, path, `[{"op":"test","path":"/spec/c-past-double","value":9007199254740993}]`, "Content-Type", jsonPatch).want(http.StatusOK))
		for _, query := range []string{"?fieldSelector=metadata.name%3Dnumbers", "?fieldSelector=metadata.name%3Dnumbers&resourceVersion=0"} {
			list := s.do("list "+query, http.MethodGet, planets+query, "").want(http.StatusOK)
			list.wantNumbers(list.body)
		}
		yaml := s.ask(s.target.api, "GET as YAML", http.MethodGet, path, "", "Accept", "application/yaml").want(http.StatusOK)
		for _, line := range []string{"a-most: 9223372036854775807\n", "b-least: -9223372036854775808\n", "c-past-double: 9007199254740993\n"} {
			if !strings.Contains(string(yaml.body), line) {
				s.t.Errorf("YAML lacks %q", line)
			}
		}
		s.do("delete", http.MethodDelete, path, "").want(http.StatusOK)
		watch := s.do("watch", http.MethodGet, planets+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnumbers&resourceVersion="+since, "").want(http.StatusOK)
		events := strings.Split(strings.TrimSpace(string(watch.body)), "\n")
		if len(events) < 4 {
			s.t.Fatalf("the watch has %d events, want at least 4: %s", len(events), watch.body)
		}
		for _, line := range events {
			watch.wantNumbers([]byte(line))
		}
	})
}

// TestIntegersOfSchema reproduces kubernetes/kubernetes 30213 for a typed integer field.
func TestIntegersOfSchema(t *testing.T) {
	compare(t, func(s *session) {
		for _, size := range []string{"9223372036854775807", "-9223372036854775808", "9007199254740993", "1e2", "7.0"} {
			name := "size " + size
			s.do(name, http.MethodPost, s.gadgets()+"?dryRun=All", gadget("g", `{"size":`+size+`}`))
		}
		// The path of the replicas holds 32 bits.
		s.do("past 32 bits", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("f", `{"size":2147483648}`)).
			wantStatus(http.StatusUnprocessableEntity, "Invalid", ".spec.size: Invalid value: 2147483648")
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"size":2147483647}`)).want(http.StatusCreated)
		for _, version := range []string{"", "&resourceVersion=0"} {
			list := s.do("select"+version, http.MethodGet, s.gadgets()+"?fieldSelector=spec.size%3D2147483647"+version, "").want(http.StatusOK)
			if !strings.Contains(string(list.body), `"size":2147483647`) {
				s.t.Errorf("the selector of a large integer finds nothing: %s", list.body)
			}
			near := s.do("select a neighbour"+version, http.MethodGet, s.gadgets()+"?fieldSelector=spec.size%3D2147483646"+version, "").want(http.StatusOK)
			if strings.Contains(string(near.body), `"size"`) {
				s.t.Errorf("the selector of another integer finds the gadget: %s", near.body)
			}
		}
		s.do("fraction", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("f", `{"size":1.5}`)).wantStatus(http.StatusUnprocessableEntity, "Invalid", "spec.size")
		s.do("past int64", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("f", `{"size":9223372036854775808}`))
	})
}
