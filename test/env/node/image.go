// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// binDir is where a container finds the programs, relative to its root directory.
const binDir = "usr/local/bin"

// searchPath is the PATH of every container.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// directories are the folders of a node.
type directories struct {
	// image has one file for each program.
	image string
	// pods has the root directories of running pods.
	pods string
	// claims has the data of every PersistentVolumeClaim that no pod has mounted.
	claims string
	// logs has what every container printed, also after its end.
	logs string
}

func newDirectories(dir string, programs map[string]string) (directories, error) {
	d := directories{
		image:  filepath.Join(dir, "image"),
		pods:   filepath.Join(dir, "pods"),
		claims: filepath.Join(dir, "claims"),
		logs:   filepath.Join(dir, "logs"),
	}
	for _, folder := range []string{d.image, d.pods, d.claims, d.logs} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return d, fmt.Errorf("creating the folders of the node: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if err := addProgram(programs[name], filepath.Join(d.image, name)); err != nil {
			return d, err
		}
	}
	return d, nil
}

// addProgram puts a program into the image.
func addProgram(source, target string) error {
	static, err := linkedStatically(source)
	if err != nil {
		return err
	}
	if !static {
		return fmt.Errorf("%s needs shared libraries, which an empty image lacks: build it with CGO_ENABLED=0", source)
	}
	if err := os.Link(source, target); err == nil {
		return nil
	}
	return copyFile(source, target)
}

// linkedStatically says that a program asks for no dynamic loader.
func linkedStatically(path string) (bool, error) {
	file, err := elf.Open(path)
	if err != nil {
		return false, fmt.Errorf("reading a program of the image: %w", err)
	}
	defer file.Close() //nolint:errcheck // opened for reading
	return !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}

func copyFile(source, target string) (err error) {
	from, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("copying a program into the image: %w", err)
	}
	defer from.Close() //nolint:errcheck // opened for reading
	to, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("copying a program into the image: %w", err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copying %s into the image: %w", source, err)
	}
	return nil
}

// makeRoot fills the root directory of a pod from the image.
func (d directories) makeRoot(root string) error {
	for _, folder := range []string{binDir, "etc", "dev", volumeDir} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return fmt.Errorf("creating the root directory of a pod: %w", err)
		}
	}
	programs, err := os.ReadDir(d.image)
	if err != nil {
		return fmt.Errorf("reading the image: %w", err)
	}
	for _, program := range programs {
		err := os.Link(filepath.Join(d.image, program.Name()), filepath.Join(root, binDir, program.Name()))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("filling the root directory of a pod: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/resolv.conf"), nil, 0o644); err != nil {
		return fmt.Errorf("filling the root directory of a pod: %w", err)
	}
	return nil
}
