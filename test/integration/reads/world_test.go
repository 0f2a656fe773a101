// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reads shows on a running server what every read leaves: a row of
// ListProfiles, metrics, and annotations of its audit event.
package reads

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

const (
	gadgets  = 100
	patience = time.Minute

	collection = "/apis/lab.annex.test/v1/namespaces/t/gadgets"
	everywhere = "/apis/lab.annex.test/v1/gadgets"
)

type world struct {
	*adopted.World

	annex    versioned.Interface
	registry metrics.KubeRegistry
	auditLog string
}

// startWorld starts a server that writes an audit log, with objects. Its group is open.
func startWorld(t *testing.T) world {
	t.Helper()
	dir := t.TempDir()
	policy, err := env.WriteAuditPolicy(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "audit.log")
	w := world{
		World:    adopted.Start(t, "--audit-policy-file="+policy, "--audit-log-path="+log),
		auditLog: log,
		registry: metrics.NewKubeRegistry(),
	}
	if err := w.Server.Config.ExtraConfig.Reads.Register(w.registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	if w.annex, err = versioned.NewForConfig(w.Config(t, adopted.Somebody)); err != nil {
		t.Fatal(err)
	}
	w.ServeNow(t, v1alpha1.ServingOpen)
	if err := env.SeedGadgets(t.Context(), w.Config(t, adopted.Controller), "t", gadgets); err != nil {
		t.Fatal(err)
	}
	return w
}

// client is a client of a user with a user agent.
func (w world) client(t *testing.T, user, agent string) *http.Client {
	t.Helper()
	config := w.Config(t, user)
	config.UserAgent = agent
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func (w world) get(t *testing.T, client *http.Client, path string) adopted.Answer {
	t.Helper()
	answer, err := adopted.Do(t.Context(), client, http.MethodGet, w.URL(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// rows are the profiles of a user.
func (w world) rows(t *testing.T, user string) []v1alpha1.ListProfileRow {
	t.Helper()
	list, err := w.annex.KubeannexV1alpha1().ListProfiles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []v1alpha1.ListProfileRow
	for _, item := range list.Items {
		if item.Profile.User == user {
			rows = append(rows, item.Profile)
		}
	}
	return rows
}

// events are the events of a user in an audit log, once there are n of them.
func events(t *testing.T, log, user string, n int) []auditv1.Event {
	t.Helper()
	var events []auditv1.Event
	await(t, "the audit events of "+user, func() bool {
		events = nil
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			var event auditv1.Event
			// The last line may be half written.
			if json.Unmarshal(line, &event) == nil && event.User.Username == user {
				events = append(events, event)
			}
		}
		return len(events) >= n
	})
	return events
}

// own are the annotations that are Annex's.
func own(event *auditv1.Event) map[string]string {
	annotations := map[string]string{}
	for key, value := range event.Annotations {
		if name, ok := strings.CutPrefix(key, "kubeannex.io/"); ok {
			annotations[name] = value
		}
	}
	return annotations
}

// metric is the sum of the series of a metric that have all of the labels.
func (w world) metric(t *testing.T, name string, want labels.Set) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			set := labels.Set{}
			for _, label := range metric.GetLabel() {
				set[label.GetName()] = label.GetValue()
			}
			if labels.SelectorFromSet(want).Matches(set) {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
