// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package env

import "syscall"

// dieWithParent does nothing where the kernel has no death signal: there only
// Close ends the children.
func dieWithParent() *syscall.SysProcAttr { return nil }
