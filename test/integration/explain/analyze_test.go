// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

// TestAnalyzedListsAreSeen checks that a list that is run for a review leaves what every other
// list leaves, under who asks and his user agent, and that one that is explained leaves nothing.
func TestAnalyzedListsAreSeen(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := startWorld(t, "--audit-policy-file="+policy, "--audit-log-path="+log)
	hers := w.as(t, "ada", "system:masters")
	config := rest.CopyConfig(hers.config)
	config.UserAgent = "agent/1.2 (some/platform)"
	annex, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	hers = world{config: config, annex: annex}
	spec := v1alpha1.ListReviewSpec{Path: allPath + "?labelSelector=team%3Da&resourceVersion=0"}
	if _, err := hers.review(t, spec); err != nil {
		t.Fatal(err)
	}
	if got := w.profiles(t, "ada"); len(got) != 0 {
		t.Errorf("got the profiles %q of a list that was only explained", got)
	}
	spec.Analyze = true
	status, err := hers.review(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	scanned, returned := fmt.Sprint(*status.Actual.Scanned), fmt.Sprint(*status.Actual.Returned)
	want := []string{"agent list gadgets team= Cache l:team count 1 failed 0 scanned " + scanned + " returned " + returned}
	if diff := cmp.Diff(want, w.profiles(t, "ada")); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
	events := auditEvents(t, log, "ada", 3)
	var got []string
	for _, event := range events {
		got = append(got, describe(event))
	}
	of := "agent/1.2 (some/platform) Cache Any l:team " + scanned + " " + returned
	wantEvents := []string{
		"create /apis/kubeannex.io/v1alpha1/listreviews agent/1.2 (some/platform)     ",
		"list " + spec.Path + " " + of,
		"create /apis/kubeannex.io/v1alpha1/listreviews " + of,
	}
	if diff := cmp.Diff(wantEvents, got); diff != "" {
		t.Fatalf("audit events (-want +got):\n%s", diff)
	}
	list, review := events[1], events[2]
	wantOrigin := []any{review.AuditID, review.SourceIPs, review.User.Username}
	if diff := cmp.Diff(wantOrigin, []any{list.AuditID, list.SourceIPs, list.Annotations["kubeannex.io/asked-by"]}); diff != "" || review.User.Username == "" || len(review.SourceIPs) == 0 {
		t.Errorf("Audit-ID, addresses and impersonator (-of the review +of the list):\n%s", diff)
	}
}

// profiles are the rows of a user.
func (w world) profiles(t *testing.T, user string) []string {
	t.Helper()
	list, err := w.annex.KubeannexV1alpha1().ListProfiles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, item := range list.Items {
		if row := item.Profile; row.User == user {
			rows = append(rows, fmt.Sprintf("%s %s %s %s %s %s count %d failed %d scanned %d returned %d",
				strings.TrimSuffix(row.Client, "/1.2"), row.Verb, row.Resource, row.Selector, row.Source, row.Index, row.Count, row.Failed, row.Scanned, row.Returned))
		}
	}
	return rows
}

// auditEvents are those of an impersonated user, once there are n of them, but for what clients ask beforehand.
func auditEvents(t *testing.T, log, user string, n int) []auditv1.Event {
	t.Helper()
	var found []auditv1.Event
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		found = nil
		content, err := os.ReadFile(log)
		if err != nil {
			return false, err
		}
		for line := range bytes.Lines(content) {
			var event auditv1.Event
			// The last line may be half written.
			if json.Unmarshal(line, &event) != nil || event.ObjectRef == nil {
				continue
			}
			if by := event.ImpersonatedUser; event.User.Username != user && (by == nil || by.Username != user) {
				continue
			}
			found = append(found, event)
		}
		return len(found) >= n, nil
	})
	if err != nil {
		t.Fatalf("waiting for %d audit events: %v, got %+v", n, err, found)
	}
	return found
}

// describe is what an audit event says of a list.
func describe(event auditv1.Event) string {
	return fmt.Sprintf("%s %s %s %s %s %s %s %s", event.Verb, event.RequestURI, event.UserAgent,
		event.Annotations["kubeannex.io/source"], event.Annotations["kubeannex.io/rule"], event.Annotations["kubeannex.io/index"],
		event.Annotations["kubeannex.io/scanned"], event.Annotations["kubeannex.io/returned"])
}
