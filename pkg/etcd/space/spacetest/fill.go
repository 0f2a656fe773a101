// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spacetest makes an etcd full, for tests.
package spacetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// Prefix is that of all keys that are written here.
	Prefix = "/fill/"

	valueBytes = 256 << 10
	// maxValues is more than any quota of a test takes.
	maxValues = 400
)

// Write writes values until etcd refuses one, and raises its space alarm with
// that. The keys are those that key gives to 0, 1 and so on below Prefix.
//
// The refused value can be stored all the same, so ask etcd how many it has: one
// that finds only when it applies a write that its quota is passed does both
// (quotaApplierV3 in go.etcd.io/etcd/server/v3/etcdserver/apply/quota.go).
func Write(t *testing.T, client *clientv3.Client, key func(i int) string) {
	t.Helper()
	value := strings.Repeat("x", valueBytes)
	for i := range maxValues {
		_, err := client.Put(t.Context(), Prefix+key(i), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("etcd took %d values", maxValues)
}

// Fill writes values of keys of their own until defragmentation leaves no room
// for a request below the quota, and leaves the space alarm raised. One Write may
// not do: how much of a database is free pages depends on how often it is committed.
func Fill(t *testing.T, client *clientv3.Client, quota, request int64) {
	t.Helper()
	written := 0
	for {
		Write(t, client, func(int) string {
			written++
			return fmt.Sprintf("%03d", written)
		})
		endpoint := client.Endpoints()[0]
		if _, err := client.Defragment(t.Context(), endpoint); err != nil {
			t.Fatal(err)
		}
		status, err := client.Status(t.Context(), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.DbSize+request >= quota+valueBytes { // a restart may save some pages
			return
		}
		if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Count returns how many values there are below Prefix.
func Count(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	response, err := client.Get(t.Context(), Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return int(response.Count)
}
