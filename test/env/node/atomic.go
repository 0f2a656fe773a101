// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// dataLink is the symbolic link by which all files of a volume change at once;
// watchers of files know its name from kubelet.
const dataLink = "..data"

// payload is what a volume holds.
type payload struct {
	files map[string]payloadFile
}

type payloadFile struct {
	data []byte
	mode fs.FileMode
	// owner is a user id; 0 is root.
	owner int
}

func newPayload() *payload { return &payload{files: map[string]payloadFile{}} }

// add takes all keys, or the chosen ones under their paths.
func (p *payload) add(data map[string][]byte, items []corev1.KeyToPath, defaultMode *int32, optional *bool) error {
	if len(items) == 0 {
		for key, value := range data {
			p.files[key] = payloadFile{data: value, mode: fileMode(nil, defaultMode)}
		}
		return nil
	}
	for _, item := range items {
		value, found := data[item.Key]
		if !found {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("references non-existent key: %s", item.Key)
		}
		p.files[item.Path] = payloadFile{data: value, mode: fileMode(item.Mode, defaultMode)}
	}
	return nil
}

func fileMode(modes ...*int32) fs.FileMode {
	for _, mode := range modes {
		if mode != nil {
			return fs.FileMode(*mode)
		}
	}
	return fs.FileMode(corev1.SecretVolumeSourceDefaultMode)
}

func (p *payload) equal(other *payload) bool {
	return other != nil && maps.EqualFunc(p.files, other.files, func(a, b payloadFile) bool {
		return a.mode == b.mode && a.owner == b.owner && bytes.Equal(a.data, b.data)
	})
}

// write replaces the files of the volume at once, in kubelet's way: they are
// links to ..data/<file>, and ..data is a link to a directory that is never changed.
func (v *volume) write(content *payload, group *int64) error {
	if content.equal(v.written) {
		return nil
	}
	previous, err := os.Readlink(filepath.Join(v.dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh, err := os.MkdirTemp(v.dir, "..version_")
	if err != nil {
		return err
	}
	if err := content.fill(fresh, group); err != nil {
		return err
	}
	next := filepath.Join(v.dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(fresh), next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(v.dir, dataLink)); err != nil {
		return err
	}
	if err := v.link(content); err != nil {
		return err
	}
	v.written = content
	if previous == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(v.dir, previous))
}

// fill writes the files into a directory.
func (p *payload) fill(dir string, group *int64) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for name, file := range p.files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, file.data, 0o600); err != nil {
			return err
		}
		// Neither the mode of WriteFile nor that of MkdirAll is free of the umask.
		if err := os.Chmod(path, file.mode); err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(path, file.owner, 0); err != nil {
				return err
			}
		}
	}
	return giveTree(dir, group, 0o440)
}

// link makes the names that a container sees and drops those that have gone.
func (v *volume) link(content *payload) error {
	wanted := map[string]bool{}
	for name := range content.files {
		top, _, _ := strings.Cut(name, "/")
		wanted[top] = true
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(v.dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if v.written == nil {
		return nil
	}
	for name := range v.written.files {
		top, _, _ := strings.Cut(name, "/")
		if !wanted[top] {
			if err := os.Remove(filepath.Join(v.dir, top)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// giveTree gives a directory with all that is in it to a group, with at least
// the given rights, as kubelet does for fsGroup. Without a group the top
// directory gets exactly the given rights if they are those of a directory.
func giveTree(dir string, group *int64, rights fs.FileMode) error {
	if group == nil {
		if rights == 0o777 {
			return os.Chmod(dir, rights)
		}
		return nil
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := os.Lchown(path, -1, int(*group)); err != nil {
				return err
			}
		}
		// The rights of owner and group only: kubelet leaves others alone.
		mode := info.Mode().Perm() | rights&0o660
		if entry.IsDir() {
			mode |= fs.ModeSetgid | 0o110 | rights&0o777
		}
		return os.Chmod(path, mode)
	})
}
