// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package space checks that an etcd accepts writes.
//
// An etcd raises the alarm NOSPACE at the first write that would take its
// database to its quota, and then refuses every write until the alarm is
// disarmed, also after space was made
// (https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota).
package space

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

// writeOverhead is what etcd charges for a write beyond its request
// (kvOverhead in go.etcd.io/etcd/server/v3/storage/quota.go).
const writeOverhead = 256

// Limits are those of an embedded etcd, in bytes.
type Limits struct {
	// Quota is the size of the database at which writes are refused.
	Quota int64
	// Request is the largest request. Etcd refuses it when it does not fit below the quota.
	Request int64
}

// hasRoom reports whether the largest request is accepted by an etcd whose
// database has the size (BackendQuota.Available in go.etcd.io/etcd/server/v3/storage/quota.go).
func (l Limits) hasRoom(size int64) bool {
	return size+l.Request+writeOverhead < l.Quota
}

// FullError says that an etcd refuses writes, and how to mend it. Reads, and deletions of what needs no
// last write, still pass (BackendQuota.Cost in go.etcd.io/etcd/server/v3/storage/quota.go).
type FullError struct{ message string }

// Error implements error.
func (e *FullError) Error() string { return e.message }

// Check fails with a FullError if the etcd behind client is full.
func Check(ctx context.Context, client *clientv3.Client) error {
	full, err := hasAlarm(ctx, client)
	if err != nil || !full {
		return err
	}
	return &FullError{fmt.Sprintf("etcd %s is full and refuses writes: raise its --quota-backend-bytes or compact and defragment it, then run etcdctl alarm disarm",
		strings.Join(client.Endpoints(), ","))}
}

// Recover lets an embedded etcd that is full accept writes again, and fails with a FullError if
// it still could not take the largest request. Its database is defragmented,
// and where that is not enough, its old revisions are dropped first: clients
// that are behind list anew. Defragmentation copies the whole database. An etcd
// that is not full is left alone.
func Recover(ctx context.Context, client *clientv3.Client, limits Limits) error {
	full, err := hasAlarm(ctx, client)
	if err != nil || !full {
		return err
	}
	before, err := databaseSize(ctx, client)
	if err != nil {
		return err
	}
	after, err := defragment(ctx, client)
	if err == nil && !limits.hasRoom(after) {
		after, err = compactAndDefragment(ctx, client)
	}
	if err != nil {
		return fmt.Errorf("making room in the embedded etcd, which is full: %w: free disk space or raise --embedded-etcd-quota-bytes", err)
	}
	if !limits.hasRoom(after) {
		return limits.full(after)
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("disarming the space alarm of the embedded etcd: %w", err)
	}
	klog.FromContext(ctx).Info("Embedded etcd was full and has room again", "bytesBefore", before, "bytesAfter", after, "quotaBytes", limits.Quota)
	return nil
}

// full is the error of an etcd whose database cannot be made smaller than size.
func (l Limits) full(size int64) *FullError {
	return &FullError{fmt.Sprintf("the embedded etcd is full: its database has %d bytes after defragmentation and its quota is %d, which leaves no room for a request of %d; raise --embedded-etcd-quota-bytes or delete objects",
		size, l.Quota, l.Request)}
}

// compactAndDefragment drops all revisions but the current one. While the alarm
// is set the API server cannot: its own compaction writes a key.
func compactAndDefragment(ctx context.Context, client *clientv3.Client) (size int64, err error) {
	if err := compact(ctx, client); err != nil {
		return 0, err
	}
	return defragment(ctx, client)
}

func compact(ctx context.Context, client *clientv3.Client) error {
	current, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = client.Compact(ctx, current.Header.GetRevision(), clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) { // it was done before, and nothing was written since
		return nil
	}
	return err
}

func defragment(ctx context.Context, client *clientv3.Client) (size int64, err error) {
	if _, err := client.Defragment(ctx, client.Endpoints()[0]); err != nil {
		return 0, err
	}
	return databaseSize(ctx, client)
}

func databaseSize(ctx context.Context, client *clientv3.Client) (int64, error) {
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return 0, fmt.Errorf("reading the size of the embedded etcd: %w", err)
	}
	return status.DbSize, nil
}

func hasAlarm(ctx context.Context, client *clientv3.Client) (bool, error) {
	response, err := client.AlarmList(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the alarms of etcd %s: %w", strings.Join(client.Endpoints(), ","), err)
	}
	for _, alarm := range response.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true, nil
		}
	}
	return false, nil
}
