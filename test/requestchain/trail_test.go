// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

const (
	auditNone            = "audit-none"
	auditMetadata        = "audit-metadata"
	auditRequest         = "audit-request"
	auditRequestResponse = "audit-request-response"
	auditFewStages       = "audit-few-stages"
)

func auditNamespaces() []string {
	return []string{auditNone, auditMetadata, auditRequest, auditRequestResponse, auditFewStages}
}

// auditPolicy takes gadgets by the level of their namespace, and what annex alone serves.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, namespaces: [audit-none]}
- {level: Metadata, namespaces: [audit-metadata]}
- {level: Request, namespaces: [audit-request]}
- {level: RequestResponse, namespaces: [audit-request-response]}
- {level: Request, namespaces: [audit-few-stages], omitStages: [RequestReceived, ResponseStarted]}
- {level: RequestResponse, resources: [{group: kubeannex.io}]}
- {level: Metadata, nonResourceURLs: ["/metrics", "/apis/kubeannex.io*", "/debug/*"]}
- {level: None}
`

// auditTrail is what one server records, in its log and at its webhook.
type auditTrail struct {
	logFile, kubeconfig string

	lock sync.Mutex
	sent []auditv1.Event
}

func newAuditTrail(e *env.Env, dir, name string) (*auditTrail, error) {
	trail := &auditTrail{logFile: filepath.Join(dir, name+".log"), kubeconfig: filepath.Join(dir, name+".kubeconfig")}
	server := httptest.NewServer(http.HandlerFunc(trail.take))
	e.CloseWith(closer(func() {
		server.CloseClientConnections()
		server.Close()
	}))
	return trail, env.WriteKubeconfig(trail.kubeconfig, &rest.Config{Host: server.URL})
}

// flags make a server write to the trail.
func (a *auditTrail) flags(policy string) []string {
	return []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + a.logFile, "--audit-log-format=json",
		"--audit-webhook-config-file=" + a.kubeconfig, "--audit-webhook-mode=batch", "--audit-webhook-batch-max-wait=100ms",
	}
}

func (a *auditTrail) take(w http.ResponseWriter, req *http.Request) {
	var events auditv1.EventList
	if err := json.NewDecoder(req.Body).Decode(&events); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	a.sent = append(a.sent, events.Items...)
}

// logged returns the events of one ID in the order of the log.
func (a *auditTrail) logged(t *testing.T, id string) []auditv1.Event {
	t.Helper()
	file, err := os.Open(a.logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	var events []auditv1.Event
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return events // the end, or a line that is being written
		}
		if !strings.Contains(line, `"auditID":"`+id+`"`) {
			continue
		}
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, event)
	}
}

// ofID returns the events of one ID that the webhook was sent.
func (a *auditTrail) ofID(id string) []auditv1.Event {
	a.lock.Lock()
	defer a.lock.Unlock()
	var events []auditv1.Event
	for _, event := range a.sent {
		if string(event.AuditID) == id {
			events = append(events, event)
		}
	}
	return events
}

// ended returns the logged events of an ID once the last one is written, and demands as many at the webhook.
func (a *auditTrail) ended(t *testing.T, id string) []auditv1.Event {
	t.Helper()
	var events []auditv1.Event
	await(t, "the end of "+id+" in "+a.logFile, func(context.Context) bool {
		events = a.logged(t, id)
		if len(events) == 0 {
			return false
		}
		last := events[len(events)-1]
		// Who is not known gets an answer of one stage.
		return last.Stage == auditv1.StageResponseComplete || last.ResponseStatus != nil && last.ResponseStatus.Code == http.StatusUnauthorized
	})
	await(t, fmt.Sprintf("%d events of %s at the webhook", len(events), id), func(context.Context) bool {
		return len(a.ofID(id)) >= len(events)
	})
	if sent := a.ofID(id); len(sent) != len(events) {
		t.Errorf("%s: %d events are logged, %d sent", id, len(events), len(sent))
	}
	return events
}
