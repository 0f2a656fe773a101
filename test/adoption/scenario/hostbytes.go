// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// HostBytes is what the host's etcd stores, byte by byte with the revision of
// the last write, by key.
type HostBytes map[string]string

// volatile are keys that the cluster's own parts write all the time.
var volatile = []string{"/registry/leases/", "/registry/events/", "/registry/masterleases/", "/registry/peerserverleases/"}

// otherGroup begins what the names of all groups of tests end in.
const otherGroup = ".annex."

// HostBytes reads the whole etcd of the host but for what always changes and
// what belongs to the groups of other tests. The cluster must run without TLS
// between kube-apiserver and etcd.
func (g *Group) HostBytes(tb testing.TB) HostBytes {
	tb.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{g.cluster.Host.Etcd.URL}, DialTimeout: 10 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // only read from
	found := HostBytes{}
	if err := found.read(Context(tb), client); err != nil {
		tb.Fatalf("reading the host's etcd: %v", err)
	}
	maps.DeleteFunc(found, func(key, _ string) bool {
		return strings.Contains(key, otherGroup) && !strings.Contains(key, g.Name)
	})
	return found
}

func (b HostBytes) read(ctx context.Context, client *clientv3.Client) error {
	const page = 1000
	end := clientv3.GetPrefixRangeEnd("/")
	for key := "/"; ; {
		answer, err := client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return err
		}
		for _, kv := range answer.Kvs {
			name := string(kv.Key)
			key = name + "\x00"
			if !slices.ContainsFunc(volatile, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				b[name] = fmt.Sprintf("revision %d: %s", kv.ModRevision, kv.Value)
			}
		}
		if !answer.More {
			return nil
		}
	}
}

// Diff names the keys that differ, and shows their values.
func (b HostBytes) Diff(other HostBytes) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if value, found := other[key]; !found {
			fmt.Fprintf(&text, "%s is missing\n", key)
		} else if value != b[key] {
			fmt.Fprintf(&text, "%s\n  before: %q\n  after:  %q\n", key, b[key], value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(other)) {
		if _, found := b[key]; !found {
			fmt.Fprintf(&text, "%s is new\n", key)
		}
	}
	return text.String()
}

// AnnexKeys returns the keys of the group in annex's etcd.
func (g *Group) AnnexKeys(tb testing.TB) []string {
	tb.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{g.cluster.Annex.Etcd.URL}, DialTimeout: 10 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // only read from
	answer, err := client.Get(Context(tb), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		tb.Fatal(err)
	}
	var keys []string
	for _, kv := range answer.Kvs {
		if strings.Contains(string(kv.Key), g.Name) {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}
