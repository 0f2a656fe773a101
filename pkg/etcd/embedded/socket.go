// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	runDirName    = "run"
	socketName    = "etcd.sock"
	tempRunPrefix = "annex-etcd-"

	// maxSocketPath is the longest socket path in bytes that every supported system binds: sockaddr_un holds
	// 104 bytes on BSD and macOS, 108 on Linux, the closing zero included.
	maxSocketPath = 103
)

// socketDir is the private directory of the socket.
type socketDir struct {
	// path is the directory as it is used in addresses.
	path string
	// link, when set, is the symbolic link in the root directory that names a path elsewhere.
	link string
}

// socket returns the path of the listener.
func (d socketDir) socket() string {
	return filepath.Join(d.path, socketName)
}

// makeSocketDir prepares <root>/run. The caller holds the lock on root, so whatever is found there is
// left over from a process that is gone.
func makeSocketDir(root string) (socketDir, error) {
	run := filepath.Join(root, runDirName)
	if err := removeStaleLink(run); err != nil {
		return socketDir{}, err
	}
	if !addressable(filepath.Join(run, socketName)) {
		return makeLinkedSocketDir(run)
	}
	if err := makePrivateDir(run); err != nil {
		return socketDir{}, err
	}
	return socketDir{path: run}, nil
}

func makeLinkedSocketDir(run string) (socketDir, error) {
	temp, err := os.MkdirTemp("", tempRunPrefix)
	if err != nil {
		return socketDir{}, fmt.Errorf("creating directory for the etcd socket: %w", err)
	}
	dir := socketDir{path: temp, link: run}
	if !addressable(dir.socket()) {
		err := fmt.Errorf("no usable place for the etcd socket, %s is too long or holds special characters: choose a shorter --root-dir or TMPDIR", dir.socket())
		return socketDir{}, errors.Join(err, os.Remove(temp))
	}
	if err := os.Symlink(temp, run); err != nil {
		return socketDir{}, errors.Join(fmt.Errorf("linking the etcd socket directory: %w", err), os.Remove(temp))
	}
	return dir, nil
}

// remove deletes what makeSocketDir made outside the root directory, and the socket.
func (d socketDir) remove() error {
	errs := []error{ignoreNotExist(os.Remove(d.socket()))}
	if d.link != "" {
		errs = append(errs, ignoreNotExist(os.Remove(d.path)), ignoreNotExist(os.Remove(d.link)))
	}
	return errors.Join(errs...)
}

// removeStaleLink removes the link of a process that was killed, and the directory that it names.
func removeStaleLink(run string) error {
	info, err := os.Lstat(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the etcd socket directory: %w", err)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	if target, err := os.Readlink(run); err == nil && strings.HasPrefix(filepath.Base(target), tempRunPrefix) {
		stale := socketDir{path: target, link: run}
		return stale.remove()
	}
	return os.Remove(run)
}

// makePrivateDir creates a directory or narrows an existing one to mode 0700.
func makePrivateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("narrowing the mode of directory %s: %w", path, err)
	}
	return nil
}

// addressable reports whether a socket path fits an address and survives unescaped in an endpoint URL.
func addressable(path string) bool {
	return len(path) <= maxSocketPath && regexp.MustCompile("^[A-Za-z0-9/._-]+$").MatchString(path)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
