// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package space checks that an etcd accepts writes.
//
// An etcd that has reached its quota raises the alarm NOSPACE and refuses every
// write until the alarm is disarmed, also after space was made
// (https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota).
package space

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Check fails if the etcd behind client is full. The error says how to mend it.
func Check(ctx context.Context, client *clientv3.Client) error {
	full, err := hasAlarm(ctx, client)
	if err != nil || !full {
		return err
	}
	return fmt.Errorf("etcd %s is full and refuses writes: raise its --quota-backend-bytes or compact and defragment it, then run etcdctl alarm disarm",
		strings.Join(client.Endpoints(), ","))
}

// Recover lets an embedded etcd accept writes again if its database is smaller
// than quotaBytes, as after the quota was raised, or becomes so by
// defragmentation, and fails if it does not. Defragmentation copies the whole
// database. An etcd that is not full is left alone.
func Recover(ctx context.Context, client *clientv3.Client, quotaBytes int64) error {
	full, err := hasAlarm(ctx, client)
	if err != nil || !full {
		return err
	}
	size, err := databaseSize(ctx, client)
	if err != nil {
		return err
	}
	if size >= quotaBytes {
		if _, err := client.Defragment(ctx, client.Endpoints()[0]); err != nil {
			return fmt.Errorf("defragmenting the embedded etcd, which is full: %w: raise --embedded-etcd-quota-bytes", err)
		}
		if size, err = databaseSize(ctx, client); err != nil {
			return err
		}
	}
	if size >= quotaBytes {
		return fmt.Errorf("the embedded etcd is full: its database has %d bytes and its quota is %d; raise --embedded-etcd-quota-bytes", size, quotaBytes)
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("disarming the space alarm of the embedded etcd: %w", err)
	}
	return nil
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
