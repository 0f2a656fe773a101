// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package modules fetches the public projects whose definitions the tests and the
// demonstration use. modules.txt pins them, the go command fetches them and checks
// their sums. Nothing of them is kept in this repository or compiled.
package modules

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

//go:embed modules.txt
var modulesFile string

// Fetch downloads modules of modules.txt, or finds them in the module cache, and
// returns the folder of each: of those that are named by their path, or of all. The
// download happens in dir, outside of any module, so that none of them enters our go.sum.
func Fetch(ctx context.Context, dir string, paths ...string) (map[string]string, error) {
	sums := map[string]string{}
	args := []string{"mod", "download", "-json"}
	for line := range strings.Lines(modulesFile) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("modules.txt: want module, version and h1 sum in %q", line)
		}
		if len(paths) == 0 || slices.Contains(paths, fields[0]) {
			sums[fields[0]] = fields[2]
			args = append(args, fields[0]+"@"+fields[1])
		}
	}
	for _, path := range paths {
		if sums[path] == "" {
			return nil, fmt.Errorf("modules.txt does not pin %s", path)
		}
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "GO111MODULE=on", "GOWORK=off", "GOFLAGS=", "PWD="+dir)
	stdout, err := cmd.Output()
	folders, decodeErr := decodeModules(stdout, sums)
	if err := errors.Join(err, decodeErr); err != nil {
		return nil, fmt.Errorf("downloading the modules of modules.txt: %w %s", err, stderr.String())
	}
	return folders, nil
}

// decodeModules reads what "go mod download -json" prints.
func decodeModules(stdout []byte, sums map[string]string) (map[string]string, error) {
	folders := map[string]string{}
	var errs []error
	for decoder := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var module struct{ Path, Dir, Sum, Error string }
		err := decoder.Decode(&module)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch {
		case module.Error != "":
			errs = append(errs, fmt.Errorf("%s: %s", module.Path, module.Error))
		case module.Sum != sums[module.Path]:
			errs = append(errs, fmt.Errorf("%s has the sum %s, modules.txt pins %s", module.Path, module.Sum, sums[module.Path]))
		default:
			folders[module.Path] = module.Dir
		}
	}
	if len(errs) == 0 && len(folders) != len(sums) {
		errs = append(errs, fmt.Errorf("got %d of %d modules", len(folders), len(sums)))
	}
	return folders, errors.Join(errs...)
}
