// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

const (
	// DefaultRevisionFloor is the revision at which a new data directory is born, 2^50. It is far above what a
	// cluster reaches by writing (a thousand writes a second for 35,000 years) and still leaves seven eighths of the
	// integers that JavaScript clients can represent.
	DefaultRevisionFloor int64 = 1 << 50

	// DefaultQuotaBackendBytes is the size at which etcd refuses further writes, 8 GiB: the largest that etcd
	// recommends.
	DefaultQuotaBackendBytes int64 = 8 << 30

	// DefaultMaxRequestBytes is the largest request, etcd's own default of 1.5 MiB.
	DefaultMaxRequestBytes uint = embed.DefaultMaxRequestBytes

	// maxRevisionFloor keeps revisions below 2^53, the last integer that a float64 represents exactly.
	maxRevisionFloor int64 = 1 << 52
)

// Options configure an embedded etcd. The zero value of every field but RootDir means its default.
type Options struct {
	// RootDir is the directory that holds the data, the lock and the socket. It is created with mode 0700 when
	// missing. A relative path is taken from the working directory at the time of Start.
	RootDir string

	// Lock is a lock on RootDir that the caller holds, and frees after Close. Default: Start takes one and Close frees it.
	Lock *RootLock

	// QuotaBackendBytes is the size of the database, in bytes, at which etcd stops to accept writes.
	// Default: DefaultQuotaBackendBytes.
	QuotaBackendBytes int64

	// MaxRequestBytes is the largest request, in bytes, that etcd accepts. Default: DefaultMaxRequestBytes.
	MaxRequestBytes uint

	// SnapshotCount is the number of applied entries after which etcd writes a snapshot record and may drop older
	// log files. Default: etcd's own (10,000).
	SnapshotCount uint64

	// RevisionFloor is the revision at which a new data directory is born. An existing one is left as it is.
	// Default: DefaultRevisionFloor.
	RevisionFloor int64
}

// Validate returns everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.RootDir == "" {
		errs = append(errs, errors.New("embedded etcd needs a root directory: set --root-dir"))
	}
	if o.QuotaBackendBytes < 0 {
		errs = append(errs, fmt.Errorf("etcd quota is %d bytes: it must not be negative", o.QuotaBackendBytes))
	}
	if o.RevisionFloor != 0 {
		errs = append(errs, validateFloor(o.RevisionFloor))
	}
	return errors.Join(errs...)
}

// complete returns a copy with defaults filled in and an absolute root directory.
func (o Options) complete() (Options, error) {
	root, err := filepath.Abs(o.RootDir)
	if err != nil {
		return o, fmt.Errorf("resolving root directory %s: %w", o.RootDir, err)
	}
	o.RootDir = root
	if o.QuotaBackendBytes == 0 {
		o.QuotaBackendBytes = DefaultQuotaBackendBytes
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if o.SnapshotCount == 0 {
		o.SnapshotCount = etcdserver.DefaultSnapshotCount
	}
	if o.RevisionFloor == 0 {
		o.RevisionFloor = DefaultRevisionFloor
	}
	return o, nil
}

// dataDir is etcd's own directory.
func (o Options) dataDir() string {
	return filepath.Join(o.RootDir, "etcd")
}

func validateFloor(floor int64) error {
	if floor < 1 || floor > maxRevisionFloor {
		return fmt.Errorf("revision floor %d is out of range: it must be between 1 and %d", floor, maxRevisionFloor)
	}
	return nil
}
