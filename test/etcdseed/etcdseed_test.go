// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdseed

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/env"
)

// testTimeout bounds each test.
const testTimeout = 2 * time.Minute

const (
	made    = "Made the data directory of a new etcd cluster"
	nothing = "Nothing to do"
	waiting = "Waiting for the other members"
)

// TestCluster follows three members from their birth through the loss of one, and of its volume.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := newCluster(t)
	first, second, third := c.members[0], c.members[1], c.members[2]

	seedings := []*env.Process{first.seed(t), second.seed(t)}
	awaitLog(ctx, t, waiting, seedings...)
	assertEmpty(t, first, second)
	assertClosedToStrangers(ctx, t, first)
	mustSeed(ctx, t, made, append(seedings, third.seed(t))...)
	startAll(ctx, t, c.members...)
	assertBorn(ctx, t, c)
	mustSeed(ctx, t, nothing, first.seed(t))

	first.put(ctx, t, "before")
	third.lose(t)
	first.put(ctx, t, "with two of three")
	code, line := ended(ctx, t, third.seed(t))
	if code != 1 || !strings.Contains(line, "has run before") {
		t.Fatalf("a member that lost its volume ends with code %d and %q, want that it is refused", code, line)
	}
	assertEmpty(t, third)
	for _, command := range commandsOf(t, line) {
		first.etcdctl(ctx, t, strings.Fields(command)...)
	}
	mustSeed(ctx, t, nothing, third.seed(t))
	assertEmpty(t, third)
	startAll(ctx, t, third)
	got, err := third.client(t).Get(ctx, "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "with two of three" {
		t.Errorf("the member that was added again has %v (%v), want what was written without it", got, err)
	}
	// It is one of them: they go on when another one is away.
	if err := second.etcd.Kill(); err != nil {
		t.Fatal(err)
	}
	third.put(ctx, t, "with the one that was added again")
}

// TestLossWhileAllAreDown is the case in which files, and a running cluster, say nothing.
func TestLossWhileAllAreDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := newCluster(t)
	first, second, third := c.members[0], c.members[1], c.members[2]
	mustSeed(ctx, t, made, first.seed(t), second.seed(t), third.seed(t))
	startAll(ctx, t, c.members...)
	for _, m := range c.members[:2] {
		if err := m.etcd.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	third.lose(t)

	seeding := third.seed(t)
	awaitLog(ctx, t, waiting, seeding)
	assertEmpty(t, third)
	first.start(t)
	code, line := ended(ctx, t, seeding)
	if code != 1 || !strings.Contains(line, "has run before") {
		t.Errorf("a member that lost its volume ends with code %d and %q, want that it is refused", code, line)
	}
	assertEmpty(t, third)
}

// TestKilledInTheMiddle kills a seeding as soon as it has begun to write, and when it has the database.
func TestKilledInTheMiddle(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := newCluster(t)
	c.members = c.members[:1]
	only := c.members[0]
	for _, sign := range []string{".", "data/member/snap/db"} {
		only.killSeeding(ctx, t, sign)
		assertEmpty(t, only)
	}
	mustSeed(ctx, t, made, only.seed(t))
	if _, err := os.Stat(only.dataDir() + ".seeding"); !os.IsNotExist(err) {
		t.Errorf("a temporary directory is left (%v)", err)
	}
	startAll(ctx, t, only)
	assertBorn(ctx, t, c)
}

// killSeeding begins a seeding and kills it when a file is there. One that was faster is undone and begun again.
func (m *member) killSeeding(ctx context.Context, t *testing.T, sign string) {
	t.Helper()
	path := filepath.Join(m.dataDir()+".seeding", sign)
	for ctx.Err() == nil {
		seeding := m.seed(t)
		for there := false; !there; {
			select {
			case <-seeding.Exited():
				there = true
			default:
				_, err := os.Stat(path)
				there = err == nil
			}
		}
		if err := seeding.Kill(); err != nil {
			t.Fatal(err)
		}
		if seeding.ExitCode() != 0 {
			return
		}
		if err := os.RemoveAll(m.dataDir()); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("no seeding could be killed when %s was there", sign)
}

// assertBorn expects one cluster, at the floor, in which all that came before is compacted.
func assertBorn(ctx context.Context, t *testing.T, c *cluster) {
	t.Helper()
	clusters := map[uint64]bool{}
	for _, m := range c.members {
		got, err := m.client(t).Get(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		clusters[got.Header.GetClusterId()] = true
		if got.Header.GetRevision() < embedded.DefaultRevisionFloor {
			t.Errorf("%s is at revision %d, want at least %d", m.name, got.Header.GetRevision(), embedded.DefaultRevisionFloor)
		}
	}
	if len(clusters) != 1 {
		t.Errorf("the members are in %d clusters, want one", len(clusters))
	}
	members, err := c.members[0].client(t).MemberList(ctx)
	if err != nil || len(members.Members) != len(c.members) {
		t.Errorf("the cluster has the members %v (%v), want %d", members, err, len(c.members))
	}
	watch := <-c.members[0].client(t).Watch(ctx, "key", clientv3.WithRev(1000))
	if !errors.Is(watch.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from an old revision gets %v, want that it is compacted", watch.Err())
	}
}

func assertEmpty(t *testing.T, members ...*member) {
	t.Helper()
	for _, m := range members {
		if _, err := os.Stat(m.dataDir()); !os.IsNotExist(err) {
			t.Errorf("%s has a data directory (%v), want none", m.name, err)
		}
	}
}

// assertClosedToStrangers asks a seeding without a certificate.
func assertClosedToStrangers(ctx context.Context, t *testing.T, m *member) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: m.cluster.strangerConfig(t), DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.peerURL+"/members", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err == nil {
		answer.Body.Close()
		t.Errorf("a client without a certificate is answered %s", answer.Status)
	}
}

// commandsOf are the commands of etcdctl that a refusal names.
func commandsOf(t *testing.T, line string) []string {
	t.Helper()
	var commands []string
	for _, found := range regexp.MustCompile(`etcdctl (member remove [0-9a-f]+|member add \S+ --peer-urls=\S+)`).FindAllStringSubmatch(line, -1) {
		commands = append(commands, found[1])
	}
	if len(commands) != 2 {
		t.Fatalf("%q names the commands %q, want two", line, commands)
	}
	return commands
}

// awaitLog waits until processes have logged a text.
func awaitLog(ctx context.Context, t *testing.T, text string, processes ...*env.Process) {
	t.Helper()
	for _, process := range processes {
		await(ctx, t, process, func() bool { return strings.Contains(process.Log(), text) })
	}
}

// await waits for what a process does.
func await(ctx context.Context, t *testing.T, process *env.Process, there func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !there() {
		select {
		case <-ticker.C:
		case <-process.Exited():
			t.Fatalf("%s ended before:\n%s", process.Name(), process.Log())
		case <-ctx.Done():
			t.Fatalf("%s did not get there:\n%s", process.Name(), process.Log())
		}
	}
}
