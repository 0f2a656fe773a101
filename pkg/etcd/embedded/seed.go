// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// seedingSuffix is appended to a data directory's name while it is made.
const seedingSuffix = ".seeding"

// Member names the etcd member that a data directory is seeded for. An etcd process that is started on the
// directory must be given the same values.
type Member struct {
	// Name is the member's --name.
	Name string
	// PeerURLs is its --initial-advertise-peer-urls.
	PeerURLs []string
	// InitialCluster is its --initial-cluster. All members that are seeded with the same one, and the same token, form
	// one cluster. Default: this member alone.
	InitialCluster string
	// ClusterToken is its --initial-cluster-token. Default: etcd-cluster, etcd's own.
	ClusterToken string
}

func (m Member) initialCluster() string {
	if m.InitialCluster != "" {
		return m.InitialCluster
	}
	var parts []string
	for _, url := range m.PeerURLs {
		parts = append(parts, m.Name+"="+url)
	}
	return strings.Join(parts, ",")
}

// Seed creates the data directory of a member of an etcd that has no keys and the revision floor, with all
// revisions up to the floor compacted: what "etcdutl snapshot restore --bump-revision --mark-compacted" makes of an
// empty snapshot. dataDir must be missing or empty. It appears complete or not at all, whenever the process is
// killed.
func Seed(ctx context.Context, dataDir string, floor int64, member Member) error {
	if err := validateFloor(floor); err != nil {
		return err
	}
	if member.ClusterToken == "" {
		member.ClusterToken = "etcd-cluster"
	}
	s := seeder{dataDir: dataDir, floor: floor, member: member, reached: func(string) {}}
	if err := s.seed(ctx); err != nil {
		return fmt.Errorf("creating etcd data directory %s: %w", dataDir, err)
	}
	return nil
}

type seeder struct {
	dataDir string
	floor   int64
	member  Member
	// reached is called after each step.
	reached func(step string)
}

func (s seeder) seed(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !isMissingOrEmpty(s.dataDir) {
		return errors.New("it exists and is not empty")
	}
	temp := s.dataDir + seedingSuffix
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return err
	}
	s.reached("made temporary directory")

	fail := newFailure()
	lg, _ := newZapLogger(klog.FromContext(ctx), fail)
	// Not cut short by ctx: a restore that nobody waits for would go on writing to a directory that the next one uses.
	err := guard(context.WithoutCancel(ctx), fail, func() error { return s.restore(lg, temp) })
	if err == nil {
		err = s.publish(temp)
	}
	return err
}

// restore fills temp/data. The snapshot lies beside it, so that renaming temp/data leaves nothing else behind.
func (s seeder) restore(lg *zap.Logger, temp string) error {
	empty := filepath.Join(temp, "empty.db")
	writeEmptySnapshot(lg, empty)
	s.reached("wrote empty snapshot")
	err := snapshot.NewV3(lg).Restore(snapshot.RestoreConfig{
		SnapshotPath:        empty,
		SkipHashCheck:       true,
		OutputDataDir:       filepath.Join(temp, "data"),
		Name:                s.member.Name,
		PeerURLs:            s.member.PeerURLs,
		InitialCluster:      s.member.initialCluster(),
		InitialClusterToken: s.member.ClusterToken,
		RevisionBump:        uint64(s.floor),
		MarkCompacted:       true,
	})
	s.reached("restored snapshot")
	return err
}

// writeEmptySnapshot writes the database of an etcd that never held a key.
func writeEmptySnapshot(lg *zap.Logger, path string) {
	db := backend.NewDefaultBackend(lg, path)
	tx := db.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafeCreateBucket(schema.Key)
	tx.UnsafeCreateBucket(schema.Meta)
	tx.Unlock()
	db.ForceCommit()
	_ = db.Close()
}

// publish moves temp/data to its place in one step, after all of it has reached the disk.
func (s seeder) publish(temp string) error {
	data := filepath.Join(temp, "data")
	if err := os.Chmod(data, 0o700); err != nil {
		return err
	}
	if err := syncTree(data); err != nil {
		return err
	}
	s.reached("synced")
	if err := ignoreNotExist(os.Remove(s.dataDir)); err != nil {
		return err
	}
	s.reached("removed empty directory")
	if err := os.Rename(data, s.dataDir); err != nil {
		return err
	}
	s.reached("renamed")
	if err := syncPath(filepath.Dir(s.dataDir)); err != nil {
		return err
	}
	return os.RemoveAll(temp)
}

func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
}

func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(file), file.Close())
}

func isMissingOrEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0)
}
