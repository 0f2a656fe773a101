// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const modulePath = "github.com/kubeannex/annex"

// Names of the programs that the harness runs.
const (
	programEtcd              = "etcd"
	programKubeAPIServer     = "kube-apiserver"
	programControllerManager = "kube-controller-manager"
	programKubectl           = "kubectl"
	programAnnex             = "annex-apiserver"
	programController        = "annex-controller"
	programPlugin            = "kubectl-annex"
)

// RepositoryRoot returns the folder that holds our go.mod. It walks up from the
// working folder, which go test sets to the folder of the package under test.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if declaresModule(filepath.Join(dir, "go.mod")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s above %s: run the tests inside the repository", modulePath, start)
		}
	}
}

// declaresModule reports whether the go.mod file declares our module.
func declaresModule(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // opened for reading
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "module "+modulePath {
			return true
		}
	}
	return false
}

// otherKubernetes is the environment variable with a folder of programs of another
// Kubernetes release, such as hack/test-skew.sh builds. Those that it lacks are today's.
const otherKubernetes = "ANNEX_KUBERNETES"

// Program returns the path of a program below _output, or an error of one line
// that names the make target which builds it.
func (e *Env) Program(name string) (string, error) {
	if folder := os.Getenv(otherKubernetes); folder != "" {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	folder, target := "kubernetes", "make kubernetes"
	switch name {
	case programAnnex, programController, programPlugin:
		folder, target = "bin", "make build"
	}
	path := filepath.Join(e.root, "_output", folder, name)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return "", fmt.Errorf("%s is not built: run %q first", name, target)
	}
	return path, nil
}
