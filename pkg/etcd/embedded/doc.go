// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embedded runs a single-member etcd inside the process, for an API server that was started
// without --etcd-servers.
//
// What lies under the root directory:
//
//	annex-apiserver.lock   held while a Server is open; contains the process id of the holder
//	etcd/                  etcd's data directory, mode 0700
//	etcd.seeding/          a data directory in the making; removed by the next start if a crash left it
//	run/etcd.sock          the only listener, mode 0600 in a directory of mode 0700
//
// There is no TCP listener and no peer listener at all, so no other local user can reach the store. A socket
// address holds about a hundred bytes; where the root directory is too long for it (or holds characters
// that do not survive in an endpoint URL), run is a symbolic link to a private directory made under
// the system's temporary directory.
//
// A new data directory is born at revision 2^50 with everything below it compacted. A watch that
// starts above the current revision is accepted by etcd and stays silent, so a client that arrives with
// a resource version of some other store must always find this store ahead of it: it is then told that its
// revision is compacted, and lists again.
package embedded
