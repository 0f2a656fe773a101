// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"

	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/space/spacetest"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// TestReplicasAddUp asks the second of two replicas who lists what, while one client
// knows the first only: in quiet times, when the first is killed, and when their
// etcd is full.
func TestReplicasAddUp(t *testing.T) {
	ctx, e := t.Context(), env.ForTest(t)
	host, err := e.StartHost(ctx, env.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	annex, err := e.StartAnnex(ctx, env.AnnexOptions{
		Host: host, Replicas: 2, Etcd: env.EtcdOptions{Args: []string{"--quota-backend-bytes=16777216"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	register(t, annex)
	kubectl := pluginAt(t, annex, 1)

	list(t, annex, 1, "calm", 1)
	list(t, annex, 0, "flooder", 200)
	awaitTop(t, kubectl, "two replicas", func(top env.Result) bool {
		return strings.Contains(top.Stdout, "of 2 replicas (") && top.Stderr == ""
	})
	for _, command := range [][]string{{"annex", "top"}, {"get", "listprofiles"}} {
		out := kubectl.MustRun(t, command...)
		if _, rows, _ := strings.Cut(out, "\n"); !strings.HasPrefix(rows, "flooder ") {
			t.Errorf("%s: the first row is not that of the client of the other replica:\n%s", strings.Join(command, " "), out)
		}
	}

	if err := annex.Replicas[0].Kill(); err != nil {
		t.Fatal(err)
	}
	// Its last answer may be shown for a moment.
	awaitTop(t, kubectl, "the killed replica to be missed", func(top env.Result) bool {
		return strings.Contains(top.Stderr, " are missing: no answer within") && strings.Count(top.Stderr, "\n") == 1 && !strings.Contains(top.Stdout, "flooder")
	})
	awaitTop(t, kubectl, "the killed replica to be forgotten", func(top env.Result) bool {
		return strings.Contains(top.Stdout, "of replica ") && top.Stderr == "" && !strings.Contains(top.Stdout, "flooder")
	})

	if err := annex.Replicas[0].Restart(ctx); err != nil {
		t.Fatal(err)
	}
	list(t, annex, 0, "flooder", 200)
	awaitTop(t, kubectl, "the replica that is back", func(top env.Result) bool { return strings.Contains(top.Stdout, "flooder") && top.Stderr == "" })
	fillEtcd(t, annex)
	awaitTop(t, kubectl, "the etcd to be full", func(top env.Result) bool {
		return strings.Contains(top.Stderr, "make room in etcd") && strings.Count(top.Stderr, "\n") == 1 && strings.Contains(top.Stdout, "of replica ")
	})
}

// list lists planets through a replica.
func list(t *testing.T, annex *env.Annex, replica int, agent string, times int) {
	t.Helper()
	config, err := annex.AdminConfig(replica)
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = agent + "/v1.0 (linux/amd64)"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for range times {
		answer, err := adopted.Do(t.Context(), client, http.MethodGet, config.Host+"/apis/lab.annex.test/v1/planets", nil)
		if err != nil || answer.Code != http.StatusOK {
			t.Fatalf("got code %d: %v: %s", answer.Code, err, answer.Body)
		}
	}
}

func pluginAt(t *testing.T, annex *env.Annex, replica int) *env.Kubectl {
	t.Helper()
	kubectl, err := annex.Kubectl(replica)
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Abs("../../../_output/bin")
	if err != nil {
		t.Fatal(err)
	}
	return kubectl.With("PATH=" + programs)
}

func top(t *testing.T, kubectl *env.Kubectl) env.Result {
	t.Helper()
	result, err := kubectl.Run(t.Context(), "annex", "top")
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("kubectl annex top: %v\n%s%s", err, result.Stdout, result.Stderr)
	}
	return result
}

func awaitTop(t *testing.T, kubectl *env.Kubectl, what string, done func(env.Result) bool) {
	t.Helper()
	var last env.Result
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = top(t, kubectl)
		return done(last), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v: the last answer was\n%s%s", what, err, last.Stdout, last.Stderr)
	}
}

func fillEtcd(t *testing.T, annex *env.Annex) {
	t.Helper()
	client, err := etcdclient.New(t.Context(), storagebackend.TransportConfig{ServerList: []string{annex.Etcd.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // it is not needed any more
	spacetest.Write(t, client, func(i int) string { return fmt.Sprint(i) })
}
