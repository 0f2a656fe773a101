// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func TestKilledSeedingIsRepeated(t *testing.T) {
	cases := map[string]struct {
		wantDataDir bool
	}{
		"made temporary directory": {},
		"wrote empty snapshot":     {},
		"restored snapshot":        {},
		"synced":                   {},
		"removed empty directory":  {},
		"renamed":                  {wantDataDir: true},
	}
	for step, tc := range cases {
		t.Run("killed after: "+step, func(t *testing.T) {
			root := t.TempDir()
			dataDir := filepath.Join(root, "etcd")
			if err := os.Mkdir(dataDir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := helper(t, "seed-and-die", dataDir, step).Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("helper ended with %v, want it killed", err)
			}
			if got := !isMissingOrEmpty(dataDir); got != tc.wantDataDir {
				t.Errorf("data directory has content: %t, want %t", got, tc.wantDataDir)
			}
			s := startServer(t, Options{RootDir: root})
			if got := s.Revision(); got != DefaultRevisionFloor {
				t.Errorf("Revision() = %d, want %d", got, DefaultRevisionFloor)
			}
			if _, err := os.Stat(dataDir + seedingSuffix); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("temporary directory: %v, want it gone", err)
			}
		})
	}
}

func TestSeedForAnotherProcess(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	peer := "http://127.0.0.1:12380"
	if err := Seed(t.Context(), dataDir, DefaultRevisionFloor, Member{Name: "other", PeerURLs: []string{peer}, ClusterToken: "token"}); err != nil {
		t.Fatal(err)
	}
	socket := url.URL{Scheme: "unix", Path: filepath.Join(t.TempDir(), "s")}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name, cfg.InitialCluster, cfg.InitialClusterToken = dataDir, "other", "other="+peer, "token"
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{{Scheme: "http", Host: "127.0.0.1:12380"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	<-etcd.Server.ReadyNotify()

	client := newClient(t, []string{socket.String()})
	members, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(members.Members) != 1 {
		t.Fatalf("%d members, want one", len(members.Members))
	}
	got := append([]string{members.Members[0].Name}, members.Members[0].PeerURLs...)
	if diff := cmp.Diff([]string{"other", peer}, got); diff != "" {
		t.Errorf("member (-want +got):\n%s", diff)
	}
	put, err := client.Put(t.Context(), "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if got := put.Header.GetRevision(); got != DefaultRevisionFloor+1 {
		t.Errorf("first write has revision %d, want %d", got, DefaultRevisionFloor+1)
	}
	_ = client.Close()
}

func TestSeedRefuses(t *testing.T) {
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	member := Member{Name: "m", PeerURLs: []string{"http://127.0.0.1:12380"}}
	cases := map[string]struct {
		dir    string
		floor  int64
		member Member
		want   string
	}{
		"a directory with content": {dir: occupied, floor: 1, member: member, want: "it exists and is not empty"},
		"no floor":                 {dir: filepath.Join(t.TempDir(), "a"), floor: 0, member: member, want: "revision floor 0 is out of range"},
		"no peer URL":              {dir: filepath.Join(t.TempDir(), "b"), floor: 1, member: Member{Name: "m"}, want: "no valid URLs given"},
		"a peer URL without port":  {dir: filepath.Join(t.TempDir(), "c"), floor: 1, member: Member{Name: "m", PeerURLs: []string{"http://x"}}, want: "host:port"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Seed(t.Context(), tc.dir, tc.floor, tc.member)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Seed() = %v, want %q in it", err, tc.want)
			}
			assertOneLine(t, err)
		})
	}
}
