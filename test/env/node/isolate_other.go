// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package node

import "syscall"

// isolate gives a process its root directory and user. The addresses of pods
// exist on Linux only, so this only has to compile.
func isolate(root string, who user) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Chroot:     root,
		Credential: &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups},
	}
}
