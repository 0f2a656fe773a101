// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"syscall"
)

// isolate gives a process its root directory and user. Without the rights of
// root it does so in a user namespace, where this user stands for the container's.
func isolate(root string, who user) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{
		Chroot:     root,
		Pdeathsig:  syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups},
	}
	if os.Geteuid() != 0 {
		attributes.Cloneflags = syscall.CLONE_NEWUSER
		attributes.Credential.Groups, attributes.Credential.NoSetGroups = nil, true
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: int(who.uid), HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: int(who.gid), HostID: os.Getegid(), Size: 1}}
	}
	return attributes
}
