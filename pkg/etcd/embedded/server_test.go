// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestBornAtFloor(t *testing.T) {
	cases := map[string]struct {
		options   Options
		wantFloor int64
	}{
		"by default at two to the power of fifty": {wantFloor: 1 << 50},
		"at a floor that was asked for":           {options: Options{RevisionFloor: 12345}, wantFloor: 12345},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.options.RootDir = t.TempDir()
			s := startServer(t, tc.options)
			client := newClient(t, s.Endpoints())

			if got := s.Revision(); got != tc.wantFloor {
				t.Errorf("Revision() = %d, want %d", got, tc.wantFloor)
			}
			put, err := client.Put(t.Context(), "a", "1")
			if err != nil {
				t.Fatal(err)
			}
			if got := put.Header.GetRevision(); got != tc.wantFloor+1 {
				t.Errorf("first write has revision %d, want %d", got, tc.wantFloor+1)
			}
			assertCompacted(t, client, 1000)
			assertCompacted(t, client, tc.wantFloor-1)
			assertWatch(t, client, tc.wantFloor+1)
		})
	}
}

// assertCompacted demands that list and watch from an old revision are refused, which makes informers list again.
func assertCompacted(t *testing.T, client *clientv3.Client, revision int64) {
	t.Helper()
	if _, err := client.Get(t.Context(), "a", clientv3.WithRev(revision)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("get at revision %d: error is %v, want %v", revision, err, rpctypes.ErrCompacted)
	}
	response := <-client.Watch(t.Context(), "a", clientv3.WithRev(revision))
	if !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		t.Errorf("watch from revision %d: error is %v, want %v", revision, response.Err(), rpctypes.ErrCompacted)
	}
}

func assertWatch(t *testing.T, client *clientv3.Client, revision int64) {
	t.Helper()
	response := <-client.Watch(t.Context(), "a", clientv3.WithRev(revision))
	if response.Err() != nil || len(response.Events) != 1 {
		t.Errorf("watch from revision %d: %d events, error %v, want one event", revision, len(response.Events), response.Err())
	}
}

func TestRevisionSurvivesRestart(t *testing.T) {
	root := t.TempDir()
	for start := range 3 {
		s := startServer(t, Options{RootDir: root})
		if got := s.Revision(); got != DefaultRevisionFloor {
			t.Errorf("start %d: Revision() = %d, want %d", start, got, DefaultRevisionFloor)
		}
		closeServer(t, s)
	}
}

func TestDataSurvivesClose(t *testing.T) {
	root := t.TempDir()
	s := startServer(t, Options{RootDir: root})
	client := newClient(t, s.Endpoints())
	put, err := client.Put(t.Context(), "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	if err := s.Err(); err != nil {
		t.Errorf("Err() after Close() = %v", err)
	}
	<-s.Done()

	s = startServer(t, Options{RootDir: root, RevisionFloor: DefaultRevisionFloor + 7})
	got, err := newClient(t, s.Endpoints()).Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) != 1 || got.Kvs[0].ModRevision != put.Header.GetRevision() {
		t.Errorf("after a restart the store holds %v, want the key of revision %d", got.Kvs, put.Header.GetRevision())
	}
}

func TestCloseEndsOpenWatches(t *testing.T) {
	s := startServer(t, Options{RootDir: t.TempDir()})
	client := newClient(t, s.Endpoints())
	watch := client.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	<-watch
	began := time.Now()
	closeServer(t, s)
	if took := time.Since(began); took > closeTimeout {
		t.Errorf("Close() took %s", took)
	}
}

func TestKillLosesNoAcknowledgedWrite(t *testing.T) {
	root := t.TempDir()
	acknowledged := killAfterLines(t, helper(t, "write-until-killed", root), 300)

	s := startServer(t, Options{RootDir: root})
	got, err := newClient(t, s.Endpoints()).Get(t.Context(), "key-", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]bool{}
	for _, kv := range got.Kvs {
		stored[fmt.Sprintf("%s %d", kv.Key, kv.ModRevision)] = true
	}
	for _, line := range acknowledged {
		if !stored[line] {
			t.Errorf("acknowledged write %s is gone", line)
		}
	}
	t.Logf("%d writes acknowledged, %d stored", len(acknowledged), len(stored))
}

func TestModeIsNarrowed(t *testing.T) {
	root := t.TempDir()
	closeServer(t, startServer(t, Options{RootDir: root}))
	for _, dir := range []string{"etcd", "run"} {
		if err := os.Chmod(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	startServer(t, Options{RootDir: root})
	for _, dir := range []string{"etcd", "run"} {
		info, err := os.Stat(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o700 {
			t.Errorf("%s has mode %o, want 700", dir, got)
		}
	}
}

func TestSocketPlace(t *testing.T) {
	cases := map[string]struct {
		root       string
		wantInRoot bool
	}{
		"in a root directory with a short name":                  {root: "short", wantInRoot: true},
		"elsewhere when the name is too long for an address":     {root: strings.Repeat("long", 30)},
		"elsewhere when the name would be escaped in a URL":      {root: "with space and 100%"},
		"elsewhere when the name would be split in a flag value": {root: "a,b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			base, err := os.MkdirTemp("", "annex")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			root := filepath.Join(base, tc.root)
			s := startServer(t, Options{RootDir: root})
			if _, err := newClient(t, s.Endpoints()).Put(t.Context(), "a", "1"); err != nil {
				t.Errorf("writing through %s: %v", s.Endpoints(), err)
			}
			dir := s.sockets.path
			if got := dir == filepath.Join(root, runDirName); got != tc.wantInRoot {
				t.Errorf("socket directory is %s, want inside the root directory: %t", dir, tc.wantInRoot)
			}
			info, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o700 {
				t.Errorf("socket directory has mode %o, want 700", got)
			}
			closeServer(t, s)
			if _, err := os.Stat(dir); !tc.wantInRoot && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("socket directory after Close(): %v, want it gone", err)
			}
		})
	}
}

func TestStaleSocketDirIsRemoved(t *testing.T) {
	root := t.TempDir()
	stale, err := os.MkdirTemp("", tempRunPrefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(stale, filepath.Join(root, runDirName)); err != nil {
		t.Fatal(err)
	}
	startServer(t, Options{RootDir: root})
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory of a killed process: %v, want it gone", err)
	}
}

func TestEtcdThatFailsIsReported(t *testing.T) {
	s := startServer(t, Options{RootDir: t.TempDir()})
	if err := s.Err(); err != nil {
		t.Fatalf("Err() of a running server = %v", err)
	}
	// What etcd does when it cannot write its log any more; the calling goroutine ends.
	go s.etcd.GetLogger().Fatal("failed to save Raft hard state and entries")
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "failed to save Raft hard state and entries") {
		t.Errorf("Err() = %v, want the reason that etcd gave", err)
	}
	assertOneLine(t, s.Err())
}

func TestEtcdThatStopsIsReported(t *testing.T) {
	s := startServer(t, Options{RootDir: t.TempDir()})
	go s.etcd.Server.Stop()
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "stopped by itself") {
		t.Errorf("Err() = %v, want that etcd stopped by itself", err)
	}
}

func TestOptionsValidate(t *testing.T) {
	cases := map[string]struct {
		options Options
		want    string
	}{
		"only a root directory is needed": {options: Options{RootDir: "x"}},
		"no root directory":               {want: "embedded etcd needs a root directory: set --root-dir"},
		"negative quota":                  {options: Options{RootDir: "x", QuotaBackendBytes: -1}, want: "etcd quota is -1 bytes: it must not be negative"},
		"negative floor":                  {options: Options{RootDir: "x", RevisionFloor: -1}, want: "revision floor -1 is out of range: it must be between 1 and 4503599627370496"},
		"floor beyond JavaScript":         {options: Options{RootDir: "x", RevisionFloor: 1 << 53}, want: "revision floor 9007199254740992 is out of range: it must be between 1 and 4503599627370496"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := tc.options.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Validate() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOptionsReachEtcd(t *testing.T) {
	s := &Server{options: Options{RootDir: "/r", QuotaBackendBytes: 1, MaxRequestBytes: 2, SnapshotCount: 3}}
	cfg := s.config(nil)
	got := []any{cfg.Dir, cfg.QuotaBackendBytes, cfg.MaxRequestBytes, cfg.SnapshotCount, cfg.UnsafeNoFsync, cfg.AutoCompactionRetention}
	if diff := cmp.Diff([]any{"/r/etcd", int64(1), uint(2), uint64(3), false, "0"}, got); diff != "" {
		t.Errorf("etcd configuration (-want +got):\n%s", diff)
	}
}

func assertOneLine(t *testing.T, err error) {
	t.Helper()
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want one line", err)
	}
}
