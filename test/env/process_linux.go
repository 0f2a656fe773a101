// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import "syscall"

// dieWithParent makes the kernel kill the child when the test process dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
