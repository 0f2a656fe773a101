// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listwatch tests what GET, LIST and WATCH answer and who answers them:
// the watch cache, the watch cache after a question to etcd, or etcd.
//
// The rules are written down in rules_test.go, once, in words and as code. The
// tests send every combination of parameters to a real server over a real etcd
// and compare; docs/list-watch.md is generated from the same rules. Run
// go test ./test/integration/listwatch -run TestDocument -update to renew it.
package listwatch
