// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

const lockFileName = "annex-apiserver.lock"

// RootLock is an exclusive lock on a root directory. The kernel frees it when the process ends, however it ends.
type RootLock struct {
	file *fileutil.LockedFile
}

// LockRootDir makes a root directory its caller's own, without waiting: bbolt's own lock, which etcd takes later, waits
// for ever and says so only in a log. The directory must exist. One that another process holds is an error that names
// the process. Start takes this lock by itself unless it is given one.
func LockRootDir(root string) (*RootLock, error) {
	path := filepath.Join(root, lockFileName)
	file, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("root directory %s is in use by another annex-apiserver (pid %s): stop it or choose another --root-dir",
			root, lockHolder(path))
	}
	if err != nil {
		return nil, fmt.Errorf("locking root directory %s: %w", root, err)
	}
	lock := &RootLock{file: file}
	if err := lock.writeHolder(); err != nil {
		return nil, errors.Join(fmt.Errorf("writing lock file %s: %w", path, err), lock.Release())
	}
	return lock, nil
}

func (l *RootLock) writeHolder() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Release frees the lock. The file stays: removing it would let two processes lock two files of one name. Nothing
// happens to a nil lock.
func (l *RootLock) Release() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

func lockHolder(path string) string {
	content, err := os.ReadFile(path)
	pid := strings.TrimSpace(string(content))
	if err != nil || pid == "" {
		return "unknown"
	}
	return pid
}
