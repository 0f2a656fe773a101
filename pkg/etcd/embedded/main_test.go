// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// helperEnv makes the test binary run one helper instead of the tests: "<helper> <argument> ...".
const helperEnv = "ANNEX_EMBEDDED_TEST_HELPER"

func TestMain(m *testing.M) {
	// Log files of 64 MiB, one per data directory, would make most of the run time. Small ones are also cut more often.
	wal.SegmentSizeBytes = 256 << 10
	if command := os.Getenv(helperEnv); command != "" {
		os.Exit(runHelper(strings.SplitN(command, " ", 3)))
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

// runHelper is the body of a helper process.
func runHelper(args []string) int {
	var err error
	switch args[0] {
	case "seed-and-die":
		err = seedAndDie(args[1], args[2])
	case "write-until-killed":
		err = writeUntilKilled(args[1])
	default:
		err = fmt.Errorf("unknown helper %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// seedAndDie seeds a data directory and kills its own process after the named step.
func seedAndDie(dataDir, step string) error {
	s := seeder{
		dataDir: dataDir,
		floor:   DefaultRevisionFloor,
		member:  Member{Name: memberName, PeerURLs: []string{peerURL}, ClusterToken: "etcd-cluster"},
		reached: func(reached string) {
			if reached == step {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		},
	}
	if err := s.seed(context.Background()); err != nil {
		return err
	}
	return fmt.Errorf("step %q was never reached", step)
}

// writeUntilKilled prints the revision of every write that etcd acknowledged.
func writeUntilKilled(root string) error {
	s, err := Start(context.Background(), Options{RootDir: root})
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		response, err := client.Put(context.Background(), fmt.Sprintf("key-%06d", i), "value")
		if err != nil {
			return err
		}
		fmt.Printf("key-%06d %d\n", i, response.Header.GetRevision())
	}
}

func helper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	return cmd
}

// killAfterLines runs a helper, kills it after it printed some lines, and returns all that it printed.
func killAfterLines(t *testing.T, cmd *exec.Cmd, lines int) []string {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var printed []string
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
		printed = append(printed, scanner.Text())
		if len(printed) == lines {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil || len(printed) < lines {
		t.Fatalf("helper ended by itself after %d lines: %v", len(printed), err)
	}
	return printed
}

func startServer(t *testing.T, options Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Start(ctx, options)
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

func newClient(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
