// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy takes requests by the level of their namespace.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: RequestResponse, namespaces: [audited]}
- {level: RequestResponse, namespaces: [audited-bare], omitManagedFields: true}
- {level: Request, namespaces: [audited-request]}
- {level: Metadata, namespaces: [audited-metadata]}
- {level: RequestResponse, resources: [{group: lab.annex.test, resources: [shifts]}]}
- {level: None}
`

func auditedNamespaces() []string {
	return []string{"audited", "audited-bare", "audited-request", "audited-metadata"}
}

func (w *world) writeAuditPolicy() (file string, err error) {
	file = filepath.Join(w.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(auditPolicy), 0o600); err != nil {
		return "", fmt.Errorf("writing an audit policy: %w", err)
	}
	return file, nil
}

// TestAudit compares what both servers write down of the same requests.
func TestAudit(t *testing.T) {
	w := shared
	for _, namespace := range auditedNamespaces() {
		for i := range 3 {
			one := gadget(namespace, i)
			if err := w.plain.must(t.Context(), request{method: http.MethodPost, path: one.path, body: one.body}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.mustSettle(t)
	var requests []request
	for _, accept := range []string{jsonType, yamlType, as(jsonType, "Table", "v1"), as(jsonType, "PartialObjectMetadataList", "v1"), as(protobufType, "PartialObjectMetadataList", "v1"), "text/plain"} {
		for _, namespace := range auditedNamespaces() {
			list := gadgets("v1", namespace)
			for _, query := range []string{"?resourceVersion=0", "?limit=2", "?labelSelector=team%3Da", "?fieldSelector=spec.unknown%3D1", "?watch=1&timeoutSeconds=1&resourceVersion=0"} {
				if strings.Contains(query, "watch") && accept != jsonType {
					continue
				}
				requests = append(requests, get(list+query, "Accept", accept))
			}
			requests = append(requests, get(list+"/g-01", "Accept", strings.Replace(accept, "MetadataList", "Metadata", 1)), get(strings.Replace(list, "/v1/", "/v1beta1/", 1), "Accept", accept))
		}
		requests = append(requests, get(groupPath+"/v1/shifts", "Accept", accept), get(shifts()+"?pretty=1", "Accept", accept, "Accept-Encoding", "gzip"))
	}
	objects := 0
	var asking sync.WaitGroup
	for i, r := range requests {
		r.header["Audit-ID"] = fmt.Sprintf("differ-%d", i)
		asking.Go(func() { w.same(t, r) })
	}
	asking.Wait()
	for i, r := range requests {
		plain, compact := w.plain.audited(t, fmt.Sprintf("differ-%d", i)), w.compact.audited(t, fmt.Sprintf("differ-%d", i))
		if diff := cmp.Diff(plain, compact); diff != "" {
			t.Errorf("%s is written down differently (-plain +compact):\n%s", r, diff)
		}
		objects += strings.Count(fmt.Sprint(plain), `"responseObject"`)
	}
	if objects == 0 {
		t.Error("no answer is written down: nothing was tested")
	}
	t.Logf("%d answers are written down", objects)
}

// audited waits for the last event of an ID and returns all of them, without what an event has of its own.
func (s *side) audited(t *testing.T, id string) []string {
	t.Helper()
	var events []string
	err := wait.PollUntilContextCancel(t.Context(), pollInterval, true, func(context.Context) (bool, error) {
		data, err := os.ReadFile(s.auditLog)
		if err != nil {
			return false, err
		}
		events = nil
		ended := false
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, len(data)+1)
		for lines.Scan() {
			if !bytes.Contains(lines.Bytes(), []byte(`"auditID":"`+id+`"`)) {
				continue
			}
			var event auditv1.Event
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				return false, nil // it is being written
			}
			ended = ended || event.Stage == auditv1.StageResponseComplete
			text, err := eventText(lines.Bytes())
			if err != nil {
				return false, err
			}
			events = append(events, text)
		}
		return ended, lines.Err()
	})
	if err != nil {
		t.Fatalf("waiting for %s in the log of the %s server: %v", id, s.name, err)
	}
	return events
}

// eventText is an event without times and without who asked. Objects are kept byte for byte.
func eventText(line []byte) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return "", err
	}
	for _, name := range []string{"requestReceivedTimestamp", "stageTimestamp", "user", "sourceIPs"} {
		delete(fields, name)
	}
	var annotations map[string]string
	if err := json.Unmarshal(fields["annotations"], &annotations); err == nil {
		for name := range annotations {
			// Requests that take long have these.
			if strings.HasPrefix(name, "apiserver.latency.k8s.io/") {
				delete(annotations, name)
			}
		}
		fields["annotations"] = json.RawMessage(quote(annotations))
	}
	text := ""
	for _, name := range sortedKeys(fields) {
		text += fmt.Sprintf("%q: %s\n", name, age.ReplaceAll(fields[name], []byte("${1}AGE$3")))
	}
	return text, nil
}
