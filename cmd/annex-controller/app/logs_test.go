// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/kubeannex/annex/pkg/command"
)

// runAsController makes the test binary behave as annex-controller.
const runAsController = "ANNEX_TEST_RUN_AS_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(runAsController) != "" {
		os.Exit(command.Execute(NewControllerCommand(signals.SetupSignalHandler()), os.Stderr))
	}
	os.Exit(m.Run())
}

// TestJSONLog demands that every line is an object, up to the first that waits for the cluster.
func TestJSONLog(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: server.URL}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	file.CurrentContext = "test"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--logging-format=json", "--v=2", "--leader-elect=false",
		"--kubeconfig="+kubeconfig, "--annex-kubeconfig="+kubeconfig, "--issue-certificates")
	cmd.Env = append(os.Environ(), runAsController+"=1")
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close() //nolint:errcheck // opened for reading
	cmd.Stdout, cmd.Stderr = input, input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	input.Close() //nolint:errcheck // the process has its own
	defer func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // it was killed
	}()
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		if strings.HasSuffix(line, "Data race detection enabled") { // said by test binaries only, before there are flags
			continue
		}
		entry := struct {
			Time    float64 `json:"ts"`
			Message string  `json:"msg"`
		}{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == 0 {
			t.Fatalf("no entry of a log: %v: %s", err, line)
		}
		if strings.HasPrefix(entry.Message, "Waiting for the cluster") {
			return
		}
	}
	t.Error("the controller ended before it waited for the cluster")
}
