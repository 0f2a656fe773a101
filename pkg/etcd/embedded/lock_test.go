// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

func TestRootDirInUse(t *testing.T) {
	cases := map[string]struct {
		// hold occupies the directory and returns the process id of the holder and a function that ends it.
		hold func(t *testing.T, root string) (pid int, free func())
	}{
		"by a server of this process": {hold: func(t *testing.T, root string) (int, func()) {
			s := startServer(t, Options{RootDir: root})
			return os.Getpid(), func() { closeServer(t, s) }
		}},
		"by another process": {hold: func(t *testing.T, root string) (int, func()) {
			cmd := helper(t, "write-until-killed", root)
			stdout, err := cmd.StdoutPipe()
			must(t, err, cmd.Start())
			if !bufio.NewScanner(stdout).Scan() {
				t.Fatal("helper wrote nothing")
			}
			return cmd.Process.Pid, func() {
				must(t, cmd.Process.Kill())
				_ = cmd.Wait()
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			pid, free := tc.hold(t, root)
			want := fmt.Sprintf("root directory %s is in use by another annex-apiserver (pid %d): stop it or choose another --root-dir", root, pid)
			got := ""
			if _, err := Start(t.Context(), Options{RootDir: root}); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("second Start() (-want +got):\n%s", diff)
			}
			free()
			startServer(t, Options{RootDir: root})
		})
	}
}

func TestLockOfTheCaller(t *testing.T) {
	root := t.TempDir()
	lock, err := LockRootDir(root)
	must(t, err)
	s := startServer(t, Options{RootDir: root, Lock: lock})
	closeServer(t, s)
	if _, err := LockRootDir(root); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("LockRootDir() after Close() = %v, want that the caller still holds it", err)
	}
	must(t, lock.Release())
	startServer(t, Options{RootDir: root})
}

func TestUnusableRootDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, err := Start(t.Context(), Options{RootDir: filepath.Join(file, "root")})
	assertOneLine(t, err)
}

func TestDataDirInUse(t *testing.T) {
	root := t.TempDir()
	s := startServer(t, Options{RootDir: root})
	closeServer(t, s)
	db, err := bolt.Open(datadir.ToBackendFileName(s.options.dataDir()), 0o600, nil)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	_, err = Start(t.Context(), Options{RootDir: root})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("Start() while an etcd holds the database = %v, want that it is in use", err)
	}
	assertOneLine(t, err)
}
