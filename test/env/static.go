// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// BuildStatic builds programs without shared libraries, as the image has them,
// into _output/static and returns their paths by name. The module is a folder
// below the repository root; packages are named as for go build, one by one. The
// first time it compiles everything, which takes minutes.
func (e *Env) BuildStatic(ctx context.Context, module string, packages ...string) (map[string]string, error) {
	programs := map[string]string{}
	for _, pkg := range packages {
		name := path.Base(pkg)
		// etcd's package is named after its major version.
		if name == "v3" {
			name = "etcd"
		}
		programs[name] = filepath.Join(e.root, "_output", "static", name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", programs[name], pkg)
		cmd.Dir = filepath.Join(e.root, filepath.FromSlash(module))
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s without shared libraries: %w: %s", pkg, err, output)
		}
	}
	return programs, nil
}
