// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
)

const (
	// boltLockTimeout bounds the wait for bbolt's own lock, which only a process that is not annex can hold.
	boltLockTimeout = time.Second

	// revisionKeyLen and tombstoneKeyLen are the lengths of the keys under which etcd keeps revisions:
	// eight bytes, an underscore, eight bytes, and a mark if the key was deleted
	// (go.etcd.io/etcd/server/v3/storage/mvcc/revision.go).
	revisionKeyLen  = 17
	tombstoneKeyLen = 18
)

// checkDataDir reads an existing data directory from end to end before etcd opens it for writing. Etcd itself meets
// most damage with a fatal log line or a crash, some with a repair that forgets acknowledged writes, and it may
// have renamed or truncated files by then. The check reads what etcd's start reads too, and writes nothing.
func checkDataDir(ctx context.Context, dir string) error {
	fail := newFailure()
	lg, quiet := newZapLogger(klog.FromContext(ctx), fail)
	quiet.Store(true)
	err := guard(ctx, fail, func() error {
		// A page number out of range is a read outside of the mapped file.
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		applied, err := checkDatabase(datadir.ToBackendFileName(dir))
		if err != nil {
			return err
		}
		return checkLog(lg, datadir.ToWALDir(dir), applied)
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("etcd data directory %s is in use by another process: stop it or choose another --root-dir", dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("etcd data directory %s cannot be read, run as its owner or mend its permissions: %w", dir, err)
	}
	return fmt.Errorf("etcd data directory %s is damaged: %w: restore it from a backup with etcdutl snapshot restore --bump-revision --mark-compacted, or move it aside and start an empty store with a higher --etcd-revision-floor", dir, err)
}

// checkDatabase walks all of the database and returns the index of the last log entry that it contains.
func checkDatabase(path string) (applied uint64, err error) {
	if _, err := os.Stat(path); err != nil {
		return 0, fmt.Errorf("database is missing: %w", err)
	}
	// No PreLoadFreelist: bbolt would walk the pages on a goroutine of its own, whose panic nobody can catch.
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: boltLockTimeout})
	if err != nil {
		return 0, fmt.Errorf("opening database %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	err = db.View(func(tx *bolt.Tx) error {
		if err := checkSize(tx, path); err != nil {
			return err
		}
		if err := tx.ForEach(checkBucket); err != nil {
			return err
		}
		applied = appliedIndex(tx)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("reading database %s: %w", path, err)
	}
	return applied, nil
}

func checkSize(tx *bolt.Tx, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("file has %d bytes of %d", info.Size(), tx.Size())
	}
	return nil
}

// checkBucket touches every page of a bucket: bbolt panics on those that are not what their parents say. A page with
// two parents shows as keys out of order.
func checkBucket(name []byte, bucket *bolt.Bucket) error {
	revisions := bytes.Equal(name, schema.Key.Name())
	var previous []byte
	return bucket.ForEach(func(key, value []byte) error {
		if previous != nil && bytes.Compare(previous, key) >= 0 {
			return fmt.Errorf("bucket %s: keys are out of order", name)
		}
		previous = key
		if !revisions {
			return nil
		}
		if len(key) != revisionKeyLen && len(key) != tombstoneKeyLen {
			return fmt.Errorf("bucket %s: %q is no revision", name, key)
		}
		if err := proto.Unmarshal(value, &mvccpb.KeyValue{}); err != nil {
			return fmt.Errorf("bucket %s: revision %x: %w", name, key, err)
		}
		return nil
	})
}

func appliedIndex(tx *bolt.Tx) uint64 {
	meta := tx.Bucket(schema.Meta.Name())
	if meta == nil {
		return 0
	}
	value := meta.Get(schema.MetaConsistentIndexKeyName)
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// checkLog reads the write-ahead log from the last snapshot on. The last record may be torn: that is how a
// crash looks, it was never acknowledged, and etcd repairs it. But no entry may be missing that the database or
// the log itself knows to be committed: etcd would use its number again and then take the new entry for applied.
func checkLog(lg *zap.Logger, dir string, applied uint64) error {
	if !wal.Exist(dir) {
		return fmt.Errorf("write-ahead log %s is missing", dir)
	}
	snapshots, err := wal.ValidSnapshotEntries(lg, dir)
	if err != nil {
		return fmt.Errorf("reading write-ahead log %s: %w", dir, err)
	}
	start := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		last := snapshots[len(snapshots)-1]
		start.Index, start.Term = last.Index, last.Term
	}
	last, committed, err := readLog(lg, dir, start)
	if err != nil {
		return fmt.Errorf("reading write-ahead log %s: %w", dir, err)
	}
	switch {
	case applied < start.GetIndex():
		return fmt.Errorf("database ends at entry %d, before the snapshot at entry %d", applied, start.GetIndex())
	case last < max(applied, committed):
		return fmt.Errorf("write-ahead log %s ends at entry %d, but entry %d was committed", dir, last, max(applied, committed))
	}
	return nil
}

// readLog returns the index of the last entry and of the last entry that the log says is committed.
func readLog(lg *zap.Logger, dir string, start *walpb.Snapshot) (last, committed uint64, err error) {
	log, err := wal.OpenForRead(lg, dir, start)
	if err != nil {
		return 0, 0, err
	}
	// Close always fails on a log that was opened for reading: it has no directory to close.
	defer func() { _ = log.Close() }()
	metadata, state, entries, err := log.ReadAll()
	if err != nil {
		return 0, 0, err
	}
	if len(metadata) == 0 {
		return 0, 0, fmt.Errorf("%s names no member", filepath.Base(dir))
	}
	last = start.GetIndex()
	if len(entries) > 0 {
		last = entries[len(entries)-1].GetIndex()
	}
	return last, state.GetCommit(), nil
}
