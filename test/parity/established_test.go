// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestServedOnceEstablished reproduces kubernetes/kubernetes 62725, 99199 and 125471: from the
// moment a CRD is established nothing about its kind is 404, at whichever replica. Two replicas are
// told so by --apiserver-count and wait before they call the CRD established.
func TestServedOnceEstablished(t *testing.T) {
	const rounds = 4
	for name, targets := range map[string][]*target{
		"kube-apiserver": {suite.hostTarget},
		"one replica":    {suite.annexTarget},
		"two replicas":   suite.pairTargets,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				t.Run(fmt.Sprint(round), func(t *testing.T) {
					t.Parallel()
					checkServed(t, targets, fmt.Sprintf("fresh%d", round))
				})
			}
		})
	}
}

func checkServed(t *testing.T, targets []*target, plural string) {
	kind := strings.ToUpper(plural[:1]) + plural[1:]
	sessions := make([]*session, len(targets))
	for i, target := range targets {
		sessions[i] = &session{t: t, target: target, namespace: "default"}
	}
	first := sessions[0]
	begin := time.Now()
	crd := definition(plural, kind, `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "")
	first.ask(first.target.crds, "create the CRD", http.MethodPost, definitions, crd).want(http.StatusCreated)
	first.until("the CRD to be established", func() bool { return first.established(plural) })
	established := time.Since(begin)

	// The other replica first: it has had the least time.
	for i := range 2 * len(sessions) {
		s := sessions[(i+1)%len(sessions)]
		name := fmt.Sprintf("object-%d", i)
		s.ask(s.target.api, "create at "+s.target.name, http.MethodPost, s.of(plural), object(kind, name, `{}`)).want(http.StatusCreated)
		for _, query := range []string{"?watch=1&timeoutSeconds=1&resourceVersion=0", "", "?limit=1", "/" + name} {
			got := s.ask(s.target.api, "GET "+query+" at "+s.target.name, http.MethodGet, s.of(plural)+query, "")
			// Until the cache is filled some lists and watches are refused with 429.
			if got.code != http.StatusOK && got.code != http.StatusTooManyRequests {
				t.Errorf("%s: answered %d %.300s", got.name, got.code, got.body)
			}
			if got.code == http.StatusTooManyRequests && got.header.Get("Retry-After") == "" {
				t.Errorf("%s: answered 429 without Retry-After", got.name)
			}
		}
	}
	t.Logf("established after %s, served after %s", established.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	if len(targets) > 1 && established < 4*time.Second {
		t.Errorf("established after %s: two replicas wait five seconds for each other", established)
	}
	first.ask(first.target.crds, "delete the CRD", http.MethodDelete, definitions+"/"+plural+"."+first.target.group, "").want(http.StatusOK)
}
